"""eventprof inside of pytest and IPython."""
