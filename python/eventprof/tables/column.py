"""A column of a table: how its values are computed, which are unknown, and text as codes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from .. import _core
from .plain_table import shorten

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .memory_taken import Taken

Array: TypeAlias = "NDArray[Any]"
Mask: TypeAlias = "NDArray[np.bool_]"

#: Which values stand for "unknown"; a function gives the mask itself, True where unknown.
Null: TypeAlias = "Literal['never', 'negative', 'zero', 'nan'] | Callable[[], Mask]"


def code_type(count: int) -> np.dtype[Any]:
    """Return the signed type of codes below `count`, as narrow as pandas makes it."""
    # pandas copies codes of another type; 127 categories already take int16 there.
    if count < 127:
        return np.dtype(np.int8)
    return np.dtype(np.int16) if count < 32767 else np.dtype(np.int32)


class Words:
    """The distinct texts of a column, by code.

    Parameters
    ----------
    load : callable
        Gives them, each once, in the order of their codes.
    """

    __slots__ = ("_load", "_objects", "_texts", "_utf8")

    def __init__(self, load: Callable[[], Sequence[str]]) -> None:
        self._load = load
        self._texts: tuple[str, ...] | None = None
        self._objects: Array | None = None
        self._utf8: tuple[NDArray[np.int32], bytes] | None = None

    def texts(self) -> tuple[str, ...]:
        """Return the texts."""
        if self._texts is None:
            self._texts = tuple(self._load())
        return self._texts

    def objects(self) -> Array:
        """Return the texts and, last, None: what code -1 picks."""
        if self._objects is None:
            words = self.texts()
            objects = np.full(len(words) + 1, None, dtype=object)
            objects[:-1] = words
            self._objects = objects
        return self._objects

    def utf8(self) -> tuple[NDArray[np.int32], bytes]:
        """Return Arrow's dictionary: offsets and UTF-8, surrogates as backslash escapes."""
        if self._utf8 is None:
            texts = [word.encode("utf-8", "backslashreplace") for word in self.texts()]
            offsets = np.zeros(len(texts) + 1, dtype=np.int32)
            np.cumsum([len(text) for text in texts], out=offsets[1:])
            self._utf8 = offsets, b"".join(texts)
        return self._utf8


def encode(texts: Iterable[str | None]) -> tuple[Array, Words]:
    """Turn texts into codes and the words that they stand for; None becomes -1."""
    texts = tuple(texts)
    words = tuple(text for text in dict.fromkeys(texts) if text is not None)
    known: dict[str | None, int] = {word: code for code, word in enumerate(words)}
    known[None] = -1
    # No bytecode an element: there may be a million functions.
    codes = np.fromiter(map(known.__getitem__, texts), code_type(len(words)), len(texts))
    return codes, Words(lambda: words)


class Column:
    """One column: how its values are computed, which of them are unknown, what they mean.

    Parameters
    ----------
    name : str
        Its name.
    load : callable
        Gives the values, or the codes of a text column (-1: null).
    dtype : data type, optional
        Of the values; None for a text column, whose codes are as narrow as may be.
    null : {'never', 'negative', 'zero', 'nan'} or callable, optional
        Which values are unknown; by default none, and of text those with a negative code.
    words : Words, optional
        The texts that codes stand for: makes it a text column.
    unit, doc : str
        For people.
    hexadecimal : bool
        How to show its numbers.
    """

    __slots__ = (
        "_load", "_nulls", "_text", "_values", "doc", "dtype", "hexadecimal", "name",
        "null", "taken", "unit", "words",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        load: Callable[[], Array],
        dtype: Any = None,
        *,
        null: Null | None = None,
        words: Words | None = None,
        unit: str = "",
        doc: str = "",
        hexadecimal: bool = False,
    ) -> None:
        self.name = name
        self._load = load
        self.dtype = None if dtype is None else np.dtype(dtype)
        self.null: Null = null or ("never" if words is None else "negative")
        self.words = words
        self.unit = unit
        self.doc = doc
        self.hexadecimal = hexadecimal
        #: Of a table of all rows of a large trace; told before memory is taken.
        self.taken: Taken | None = None
        self._values: Array | None = None
        self._nulls: Mask | None = None
        self._text: Array | None = None

    @property
    def left(self) -> bool:
        """Whether a repr has the cells at the left."""
        return self.words is not None

    @property
    def type_word(self) -> str:
        """The type, for people."""
        return "text" if self.words is not None else str(self.dtype)

    @property
    def nullable(self) -> bool:
        """Whether it may hold unknown values."""
        return self.null != "never"

    def type(self) -> np.dtype[Any]:
        """Return the type of the values or codes; computes no values."""
        if self.words is not None:
            return code_type(len(self.words.texts()))
        assert self.dtype is not None
        kind: np.dtype[Any] = self.dtype
        return kind

    def values(self) -> Array:
        """Return the values, or the codes of text; read-only, sentinels where unknown."""
        if self._values is None:
            if self.taken is not None:
                self.taken.take_values(self)
            values = self._load().astype(self.type(), copy=False)
            values.flags.writeable = False
            self._values = values
        return self._values

    def nulls(self) -> Mask | None:
        """Return the mask, True where unknown; None if nothing ever is."""
        if self._nulls is None and self.nullable:
            if self.taken is not None:
                self.taken.take(1)
            if callable(self.null):
                nulls = self.null()
            elif self.null == "negative":
                nulls = self.values() < 0
            elif self.null == "zero":
                nulls = self.values() == 0
            else:
                nulls = np.isnan(self.values())
            nulls.flags.writeable = False
            self._nulls = nulls
        return self._nulls

    def text(self) -> Array:
        """Return the texts of a text column as objects; None where unknown."""
        assert self.words is not None
        if self._text is None:
            if self.taken is not None:
                self.taken.take(8)
            text = self.words.objects().take(self.values(), mode="wrap")  # -1: the last, None
            text.flags.writeable = False
            self._text = text
        return self._text

    def array(self) -> Array:
        """Return what `table[name]` gives."""
        if self.words is not None:
            return self.text()
        nulls = self.nulls()
        if nulls is None:
            return self.values()
        return np.ma.MaskedArray(
            self.values(), mask=nulls, copy=False, fill_value=self._fill_value()
        )

    def _fill_value(self) -> Any:
        kind = self.type().kind
        return {"i": -1, "f": np.nan}.get(kind, 0)

    def items(self) -> list[Any]:
        """Return Python objects; None where unknown."""
        if self.words is not None:
            return list(self.text())
        items = list(self.values().tolist())
        nulls = self.nulls()
        if nulls is not None:
            for row in np.flatnonzero(nulls).tolist():
                items[row] = None
        return items

    def select(self, pick: Callable[[Array], Array]) -> Column:
        """Return the same column with the rows that `pick` picks, computed when asked for."""
        null = self.null

        def nulls() -> Mask:
            mask = self.nulls()
            assert mask is not None
            return pick(mask)

        return Column(
            self.name,
            lambda: pick(self.values()),
            self.dtype,
            null=nulls if callable(null) else null,
            words=self.words,
            unit=self.unit,
            doc=self.doc,
            hexadecimal=self.hexadecimal,
        )

    def pandas(self, pd: Any) -> Any:
        """Return what pandas calls a column; it shares the values' memory."""
        values = self.values()
        if self.words is not None:
            words = self.words.texts()
            try:
                "".join(words).encode()
            except UnicodeEncodeError:  # surrogates: pandas hashes texts as UTF-8; as in Arrow
                words = tuple(w.encode("utf-8", "backslashreplace").decode() for w in words)
            categories = pd.Index(words)
            if not words:
                categories = pd.Index([], dtype=object)
            kind = pd.CategoricalDtype(categories)
            return pd.Categorical.from_codes(values, dtype=kind, validate=False)
        nulls = self.nulls()
        if nulls is None or self.null == "nan":
            return values
        arrays = pd.arrays
        kinds = {"b": arrays.BooleanArray, "f": arrays.FloatingArray}
        return kinds.get(values.dtype.kind, arrays.IntegerArray)(values, nulls, copy=False)

    def arrow_type(self) -> _core._Field:
        """Return an Arrow field without values."""
        dictionary = None if self.words is None else self.words.utf8()
        return self._arrow_name(), np.empty(0, self.type()), None, self.nullable, dictionary

    def _arrow_name(self) -> str:
        """Return the name as Arrow can have it: without surrogates and NUL, as in its texts."""
        return self.name.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")

    def arrow(self) -> _core._Field:
        """Return an Arrow field over the values; codes are copied if texts are unknown."""
        nulls, values = self.nulls(), np.ascontiguousarray(self.values())
        dictionary = None if self.words is None else self.words.utf8()
        if dictionary is not None and nulls is not None and nulls.any():
            # Readers check the indices of nulls, too.
            values = np.maximum(values, 0)
            if len(dictionary[0]) == 1:
                dictionary = np.zeros(2, np.int32), b""
        return (
            self._arrow_name(),
            values,
            None if nulls is None else np.ascontiguousarray(nulls),
            self.nullable,
            dictionary,
        )

    def show(self) -> list[str]:
        """Return the cells of a repr; "-" where unknown."""
        if self.words is not None:
            return ["-" if item is None else shorten(item) for item in self.items()]
        if self.hexadecimal:
            return ["-" if item is None else f"{item:#x}" for item in self.items()]
        spec = ",.6g" if self.type().kind == "f" else "" if self.type().kind == "b" else ","
        return ["-" if item is None else format(item, spec) for item in self.items()]
