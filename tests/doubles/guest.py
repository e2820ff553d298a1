"""A virtual machine with a kernel of its own, for features that this machine's kernel lacks.

It boots Debian's kernel by emulation, which needs no rights and no support by the processor, in some ten
seconds. Its file system is this machine's, read-only, so that commands run there as they are here; `/run` is
its own, and `/run/out` in it is a folder that comes back.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
KERNEL = REPOSITORY / ".venv" / "kernel"
"""Where `make test` unpacks a kernel and its modules."""
SHARING = ("virtio_pci", "9pnet_virtio", "9p")
_MEMORY = 768  # MiB
_EMULATOR = "qemu-system-x86_64"
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")
_MOUNTS = "-t 9p -o trans=virtio,version=9p2000.L,msize=512000"
_START = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc
for module in /modules/*.ko; do insmod $module || echo "cannot load $module"; done
mount {mounts},cache=loose,ro host /host
mount -t tmpfs none /host/run
mkdir /host/run/netns /host/run/out
mount {mounts} out /host/run/out
mount -t proc none /host/proc
mount -t sysfs none /host/sys
mount -t devtmpfs none /host/dev
timeout {seconds} chroot /host /bin/sh -c {command}
poweroff -f
"""


def guest_unavailable() -> str | None:
    """Why no guest can be started here; None where one can."""
    lacking = [name for name in (_EMULATOR, "busybox") if shutil.which(name) is None]
    if lacking:
        return f"needs {' and '.join(lacking)}: apt-get install qemu-system-x86 busybox-static"
    if os.uname().machine != "x86_64":
        return "needs a machine of the kind x86_64"
    return (
        None
        if list(KERNEL.glob("boot/vmlinuz-*"))
        else f"needs a kernel in {KERNEL}: make test puts one there"
    )


def run_in_guest(command: Sequence[str], modules: Iterable[str], work: Path, seconds: float) -> str:
    """Output of a command in the repository and of the guest's kernel. `work`/out is its /run/out.

    It ends after so many seconds, whatever becomes of the command.
    """
    start, out = work / "start.cpio", work / "out"
    out.mkdir()
    _pack(_order([*SHARING, *modules]), _script(command, seconds), work / "root", start)
    shares = [
        "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
        f"local,path={out},mount_tag=out,security_model=none",
    ]
    words = [_EMULATOR, "-accel", "tcg", "-cpu", "Nehalem", "-machine", "q35", "-m", str(_MEMORY)]
    words += ["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"]
    words += ["-kernel", str(next(KERNEL.glob("boot/vmlinuz-*"))), "-initrd", str(start)]
    words += ["-append", "console=ttyS0 quiet panic=-1 mitigations=off"]
    for share in shares:
        words += ["-virtfs", share]
    try:
        ran = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=seconds
        )
    except subprocess.TimeoutExpired as late:
        said = late.stdout or b""
        return (
            said if isinstance(said, str) else said.decode(errors="replace")
        ) + "\nthe guest has not ended"
    return ran.stdout + ran.stderr


def _script(command: Sequence[str], seconds: float) -> str:
    inside = f"cd {shlex.quote(str(REPOSITORY))} && {shlex.join(command)}"
    return _START.format(mounts=_MOUNTS, seconds=int(seconds), command=shlex.quote(inside))


def _order(wanted: Iterable[str]) -> list[Path]:
    """Modules in dependency order; those built into the kernel are left out."""
    known = {path.stem.replace("-", "_"): path for path in KERNEL.glob("lib/modules/**/*.ko")}
    found = list[Path]()

    def add(name: str) -> None:
        path = known.get(name.replace("-", "_"))
        if path is None or path in found:
            return
        depends = _DEPENDS.search(path.read_bytes())
        for needed in depends[1].decode().split(",") if depends else ():
            add(needed)
        found.append(path)

    for name in wanted:
        add(name)
    return found


def _pack(modules: Sequence[Path], script: str, root: Path, archive: Path) -> None:
    """The file system that a kernel starts with."""
    for folder in ("bin", "proc", "host", "modules"):
        (root / folder).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "", root / "bin" / "busybox")
    for number, module in enumerate(modules):
        shutil.copy(module, root / "modules" / f"{number:02}-{module.name}")
    (root / "init").write_text(script)
    (root / "init").chmod(0o755)
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    packed = subprocess.run(
        ["busybox", "cpio", "-o", "-H", "newc"],
        cwd=root,
        input=names.encode(),
        capture_output=True,
        check=True,
    )
    archive.write_bytes(packed.stdout)
