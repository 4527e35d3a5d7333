"""Random programs, of which trees are made."""

from __future__ import annotations

from hypothesis import strategies as st


class Machine:
    """Runs a random program: calls, generators, exceptions, blocks that live and die."""

    def __init__(self):
        self.kept = []
        self.generators = []

    def run(self, program):
        for step in program:
            self.step(step)

    def step(self, step):
        what, value = step
        if what == "call":
            self.call(value)
        elif what == "other":
            self.other(value)
        elif what == "sorted":
            sorted([3, 1, 2], key=lambda n: self.run(value) or n)
        elif what == "keep":
            self.kept.append(bytes(value))
        elif what == "brief":
            bytearray(value)
        elif what == "grow" and self.kept:
            self.kept.append(bytearray(10))
            self.kept[-1].extend(b"x" * value)
        elif what == "drop" and self.kept:
            del self.kept[value % len(self.kept)]
        elif what == "raise":
            try:
                self.fail(value)
            except ValueError:
                pass
        elif what == "generate":
            generator = self.generate(value)
            next(generator)
            self.generators.append(generator)
        elif what == "resume" and self.generators and not self.generators[-1].gi_running:
            next(self.generators[-1], None)

    def call(self, program):
        self.run(program)

    def other(self, program):
        if len(program) % 2:
            self.run(program)
        else:
            self.call(program)

    def fail(self, program):
        self.run(program)
        raise ValueError("on purpose")

    def generate(self, program):
        for step in program:
            self.step(step)
            yield step
        yield None


SIZES = st.integers(0, 3000)
LEAVES = st.one_of(
    st.tuples(st.sampled_from(["keep", "brief", "grow"]), SIZES),
    st.tuples(st.just("drop"), st.integers(0, 9)),
    st.tuples(st.just("resume"), st.just(0)),
)
STEPS = st.recursive(
    LEAVES,
    lambda inner: st.tuples(
        st.sampled_from(["call", "other", "sorted", "raise", "generate"]),
        st.lists(inner, max_size=4),
    ),
    max_leaves=12,
)
PROGRAMS = st.lists(STEPS, max_size=6)
