"""eventprof inside of other software: pytest, IPython, web services; and a drop-in."""
