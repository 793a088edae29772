"""Runs CUDA kernels on a CPU, thread by thread, and compares them with plain f64 code: for machines without a GPU.

Run by hand (a C++20 compiler is all it needs, a few minutes): `python3 tests/kernels_on_a_cpu/run.py`. Inline
`asm` of a kernel is replaced by functions of `chip.h`; an `asm` that is not listed here is an error.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNELS = HERE / "../../crates/arpo-torch/src/kernels"

# patterns in the source, and their replacements
INSTRUCTIONS = [
    (r'asm\("cvt\.rn\.bf16.*?\);', "y = rounded(x);"),
    (r'asm\("mma\.sync.*?"r"\(b0\), "r"\(b1\)\);', "warp_mma(c, a0, a1, a2, a3, b0, b1);"),
    (r"extern __shared__ __align__\(128\) char shared\[\];", "char *shared = shared_memory;"),
    (r"typedef [a-z ]+ (bf16|u32|u64|i64);", ""),
]


def constants(name):
    """The whole numbers that the Rust side of a kernel hands to its compiler."""
    source = (KERNELS / f"{name}.rs").read_text()
    numbers = dict(re.findall(r"const ([A-Z_]+): \w+ = (\d+);", source))
    handed = re.findall(r'\("([A-Z_]+)", ([A-Z_]+)', source)
    return [f"-D{macro}={numbers[constant]}" for macro, constant in handed]


def for_a_cpu(names):
    source = "".join((KERNELS / name).read_text() for name in ["prelude.cu", *names])
    for instruction, replacement in INSTRUCTIONS:
        source = re.sub(instruction, lambda _: replacement, source, flags=re.S)
    left = [line for line in source.splitlines() if re.search(r"\basm\b", line)]
    if left:
        sys.exit(f"an asm instruction without a replacement: {left[0].strip()}")
    return source


def main():
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for name, sources in [
            ("sample", ["sample.cu"]),
            ("paged", ["tile.cu", "paged.cu"]),
            ("fused", ["norm.cu", "rotary.cu", "fused.cu"]),
        ]:
            Path(folder, "kernel.cu").write_text(for_a_cpu(sources))
            program = Path(folder, name)
            # not position-independent: addresses of shared memory have 32 bits
            options = ["-std=c++20", "-O2", "-no-pie", "-pthread", "-w", f"-I{folder}", f"-I{HERE}", *constants(name)]
            subprocess.run(["c++", *options, HERE / f"{name}.cpp", "-o", program], check=True)
            if subprocess.run([program], timeout=1200).returncode:
                failed.append(name)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


main()
