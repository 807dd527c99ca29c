"""System calls that a sandboxed program may not make, as a seccomp filter.

Namespaces and limits leave gaps that these calls would open: a nested user namespace may mount
file systems in memory that no limit bounds, and memory of System V or of a ``memfd`` counts in no
limit. The rest are ways into the kernel that no answer to a task needs.
"""

from __future__ import annotations

import platform
import struct

from hexad.contract.faults import UserError

_MACHINES = {
    "x86_64": (
        0xC000003E,
        56,
        "shmget 29, semget 64, msgget 68, ptrace 101, pivot_root 155, chroot 161, mount 165, "
        "umount2 166, init_module 175, kexec_load 246, add_key 248, request_key 249, keyctl 250, "
        "unshare 272, perf_event_open 298, setns 308, process_vm_readv 310, "
        "process_vm_writev 311, finit_module 313, memfd_create 319, bpf 321, userfaultfd 323, "
        "io_uring_setup 425, open_tree 428, move_mount 429, fsopen 430, fsmount 432, "
        "pidfd_getfd 438",
    ),
    "aarch64": (
        0xC00000B7,
        220,
        "umount2 39, mount 40, pivot_root 41, chroot 51, unshare 97, kexec_load 104, "
        "init_module 105, ptrace 117, msgget 186, semget 190, shmget 194, add_key 217, "
        "request_key 218, keyctl 219, perf_event_open 241, setns 268, process_vm_readv 270, "
        "process_vm_writev 271, finit_module 273, memfd_create 279, bpf 280, userfaultfd 282, "
        "io_uring_setup 425, open_tree 428, move_mount 429, fsopen 430, fsmount 432, "
        "pidfd_getfd 438",
    ),
}
"""Machine -> audit architecture, number of ``clone``, names and numbers that are denied."""
_CLONE3 = 435
_NAMESPACES = 0x7E020000
"""The flags of ``clone`` that make a namespace."""
_OTHER_ABI = 0x40000000
"""Numbers from here on are x32's: other doors to the same calls."""
_EPERM, _ENOSYS = 1, 38
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16
"""Offsets in ``struct seccomp_data``; the low half of an argument comes first on both machines."""


def program() -> bytes:
    """The filter for this machine, as bubblewrap reads it. Raises ``UserError`` for others.

    ``clone3`` does not exist in there, as its flags lie in memory that a filter cannot read; the C
    library then uses ``clone``.
    """
    known = _MACHINES.get(platform.machine())
    if known is None:
        raise UserError(
            f"generated code runs only in a sandbox, and there is none for {platform.machine()}",
            where="feedback.verifier",
            fix=f"use a machine that is one of {', '.join(_MACHINES)}",
        )
    architecture, clone, denied = known
    numbers = [int(entry.split()[1]) for entry in denied.split(", ")]
    refuse = _op(_RETURN, _ERRNO | _EPERM)
    code = [_op(_LOAD, _ARCHITECTURE), _op(_EQUAL, architecture, 1, 0), _op(_RETURN, _KILL)]
    code += [_op(_LOAD, _NUMBER), _op(_AT_LEAST, _OTHER_ABI, 0, 1), refuse]
    for number in numbers:
        code += [_op(_EQUAL, number, 0, 1), refuse]
    code += [_op(_EQUAL, _CLONE3, 0, 1), _op(_RETURN, _ERRNO | _ENOSYS)]
    code += [_op(_EQUAL, clone, 0, 3), _op(_LOAD, _FIRST_ARGUMENT)]
    code += [_op(_ANY_BIT, _NAMESPACES, 0, 1), refuse, _op(_RETURN, _ALLOW)]
    return b"".join(code)


def _op(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    """One instruction; ``then`` and ``otherwise`` skip so many that follow."""
    return struct.pack("HBBI", code, then, otherwise, value)
