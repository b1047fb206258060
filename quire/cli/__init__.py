"""The command line: `quire COMMAND PATH ...`.

One module for each noun: `queues`, `schedules`, `putting`, `getting`, `transactions`, ... Each has
a tuple of `Command`, which says its words, its arguments and what runs it; `table` has them all, by
subject. `line` reads what was typed, `running` runs it and says how it ended, `hints` turns calls
in errors' texts into commands.

- A command that changes something opens the store as any program does: it joins the owner, or owns
  the store while it runs. One that only looks never owns it: it asks the owner, or looks at the
  files, and works on a medium that cannot be written.
- LN2: options may stand anywhere on the line, and words that begin with a dash behind `--`. A word
  that is not known is answered with the nearest that is.
- LN3: an error is one line on standard error, with its name and what to do, as a command where one
  does it. The exit status is one of `ExitStatus`.
- LN4: what cannot be printed is not taken: a message is gone when it was written out.
"""

from quire.libraries.late_modules import late_modules as _late_modules

__getattr__ = _late_modules(globals(), "error_hints", "message_command", "status_table")

from .running import main

__all__ = ["main"]
