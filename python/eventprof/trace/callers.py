"""Who called a function, and what it called."""

from __future__ import annotations

import numpy as np

from .by_function import Function, answer_table, by_function, find_function, row_numbers, sum_by
from .column import Array
from .table import Table
from .tables import Tables


class Callers(Tables):
    """Calls by caller and by callee."""

    def callers(self, function: Function) -> Table:
        """Say who called a function.

        Parameters
        ----------
        function : int, str or callable
            As in `during`.

        Returns
        -------
        Table
            By caller and line, the most time first: function, name, module, line (of the call),
            calls, total (ns in these calls), self. An unknown caller is null.

        Raises
        ------
        ValueError
            No function of the trace matches, or more than one.
        """
        row = find_function(self, function)
        core = self._core
        calls = np.flatnonzero(core.calls("function") == row)
        keys = np.stack([core.calls("caller")[calls], core.calls("caller_line")[calls]])
        name = self.functions["name"][row]
        return self._edges(f"callers of {name}", calls, keys)

    def callees(self, function: Function) -> Table:
        """Say what a function called.

        Parameters
        ----------
        function : int, str or callable
            As in `during`.

        Returns
        -------
        Table
            By callee and line, the most time first: function, name, module, line (of the call),
            calls, total (ns in these calls), self.

        Raises
        ------
        ValueError
            No function of the trace, or several, are meant.
        """
        row = find_function(self, function)
        core = self._core
        calls = np.flatnonzero(core.calls("caller") == row)
        keys = np.stack([core.calls("function")[calls], core.calls("caller_line")[calls]])
        name = self.functions["name"][row]
        return self._edges(f"callees of {name}", calls, keys)

    def _edges(self, title: str, calls: Array, keys: Array) -> Table:
        found, group = np.unique(keys, axis=1, return_inverse=True)
        group = group.reshape(-1)
        count = found.shape[1]
        times = np.bincount(group, minlength=count)
        total = sum_by(group, self._core.calls("duration")[calls], count)
        own = sum_by(group, self._core.calls("self")[calls], count)
        order = np.argsort(-total, kind="stable")
        return answer_table(
            self,
            title,
            {
                **by_function(self, found[0][order]),
                "line": row_numbers(found[1][order]),
                "calls": times[order],
                "total": total[order],
                "self": own[order],
            },
        )
