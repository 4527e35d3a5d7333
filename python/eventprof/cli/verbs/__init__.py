"""The verbs, one a file; `eventprof.cli.load` imports the one that is asked for."""
