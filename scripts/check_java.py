"""Exit 0 if the Java that Spark would start is version 17 or newer; else say what to install."""

from __future__ import annotations

import os
import re
import subprocess
import sys

OLDEST = 17
ADVICE = (
    f"Spark needs Java {OLDEST} or newer. Install it (Debian, Ubuntu: "
    f"apt-get install openjdk-{OLDEST}-jre-headless) or point JAVA_HOME to one."
)


def java_command() -> str:
    """Spark prefers JAVA_HOME over the PATH, so this does too."""
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else "java"


def problem() -> str | None:
    """Return the problem of the installed Java, or None."""
    command = java_command()
    try:
        result = subprocess.run(
            [command, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except OSError as error:
        return f"No Java: cannot run {command!r} ({error.strerror})."
    except subprocess.TimeoutExpired:
        return f"{command!r} -version gave no answer within a minute."
    # Versions before 9 call themselves 1.x: "1.8.0_392" is Java 8.
    found = re.search(r'version "(?:1\.)?(\d+)', result.stderr + result.stdout)
    if found is None:
        return f"{command!r} -version does not name a version."
    if int(found[1]) < OLDEST:
        return f"{command!r} is Java {found[1]}."
    return None


def main() -> int:
    wrong = problem()
    if wrong is not None:
        print(f"{wrong} {ADVICE}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
