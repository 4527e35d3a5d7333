"""Print a script that completes eventprof's verbs, options and files in a shell."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from .. import VERBS, load, make_parser
from ..pages import help_of

EXAMPLES = (
    ("eventprof completion bash > ~/.local/share/bash-completion/completions/eventprof", "bash"),
    ("eventprof completion zsh > ~/.zfunc/_eventprof", "zsh, with ~/.zfunc in fpath"),
    ("eventprof completion fish > ~/.config/fish/completions/eventprof.fish", "fish"),
)

SHELLS = ("bash", "zsh", "fish")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def run(arguments: argparse.Namespace) -> int:
    """Print it."""
    sys.stdout.write({"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell]())
    return 0


def options(verb: str) -> Iterator[tuple[list[str], bool, list[str], str]]:
    """Yield a verb's options: the flags, whether they take a value, the choices, the help text."""
    for action in make_parser(verb, load(verb))._actions:
        if action.option_strings:
            choices = [str(choice) for choice in action.choices or ()]
            yield list(action.option_strings), action.nargs != 0, choices, help_of(action)


def words(verb: str) -> list[str]:
    """Return the possible values of a verb's arguments, if they are not files."""
    return [
        str(choice)
        for action in make_parser(verb, load(verb))._actions
        if not action.option_strings
        for choice in action.choices or ()
    ]


def bash() -> str:
    """Return the script for bash."""
    cases, values = [], []
    for verb in VERBS:
        flags = []
        for names, takes, choices, _ in options(verb):
            flags += names
            if takes:
                pattern = "|".join(f"{verb}:{name}" for name in names)
                values.append(f"        {pattern}) words='{' '.join(choices)}'; value=1 ;;")
        cases.append(f"        {verb}) words='{' '.join([*flags, *words(verb)])}' ;;")
    return f"""# bash completion for eventprof
_eventprof() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
    local verb=${{COMP_WORDS[1]}} words='' value=''
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W '{" ".join(VERBS)} --help --version' -- "$current")
        return
    fi
    case $verb:$previous in
{chr(10).join(values)}
    esac
    if [[ -z $value ]]; then
        case $verb in
{chr(10).join(cases)}
        esac
    fi
    if [[ -n $words && ( $current == -* || -n $value || $verb == completion ) ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    else
        mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
}}
complete -o filenames -F _eventprof eventprof
"""


def _zsh_text(text: str) -> str:
    for sign in "\\[]:'":
        text = text.replace(sign, "" if sign == "'" else "\\" + sign)
    return text


def zsh() -> str:
    """Return the script for zsh."""
    verbs = "\n".join(f"        '{verb}:{_zsh_text(what)}'" for verb, what in VERBS.items())
    cases = []
    for verb in VERBS:
        lines = []
        for names, takes, choices, text in options(verb):
            value = f":value:({' '.join(choices)})" if choices else ":value:_files" * takes
            for name in names:
                lines.append(f"                '*{name}[{_zsh_text(text)}]{value}'")
        rest = f"'*:argument:({' '.join(words(verb))})'" if words(verb) else "'*:file:_files'"
        body = " \\\n".join([*lines, f"                {rest}"])
        cases.append(f"            {verb})\n            _arguments \\\n{body}\n            ;;")
    return f"""#compdef eventprof
_eventprof() {{
    local -a verbs
    verbs=(
{verbs}
    )
    if ((CURRENT == 2)); then
        _describe verb verbs
    else
        local verb=$words[2]
        shift words
        ((CURRENT--))
        case $verb in
{chr(10).join(cases)}
        esac
    fi
}}
if [ "$funcstack[1]" = _eventprof ]; then
    _eventprof "$@"
else
    compdef _eventprof eventprof
fi
"""


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish() -> str:
    """Return the script for fish."""
    lines = ["# fish completion for eventprof"]
    for verb, what in VERBS.items():
        lines.append(
            f"complete -c eventprof -n __fish_use_subcommand -f -a {verb} -d {_fish_text(what)}"
        )
    for verb in VERBS:
        when = f"complete -c eventprof -n '__fish_seen_subcommand_from {verb}'"
        for names, takes, choices, text in options(verb):
            parts = [when]
            parts += [f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in names]
            if choices:
                parts.append(f"-x -a '{' '.join(choices)}'")
            elif takes:
                parts.append("-r")
            lines.append(" ".join([*parts, "-d", _fish_text(text)]))
        if words(verb):
            lines.append(f"{when} -f -a '{' '.join(words(verb))}'")
    return "\n".join(lines) + "\n"
