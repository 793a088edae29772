"""Runs CUDA kernels on a CPU, thread by thread, and compares them with plain arithmetic: for machines without a GPU.

Run by hand (a C++20 compiler is all it needs, a few minutes): `python3 tests/kernels_on_a_cpu/run.py`. What a kernel asks
of the chip directly (`asm`) is replaced by functions of `chip.h`; an `asm` that is not known here is an error.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNELS = HERE / "../../crates/arpo-torch/src/kernels"

# what stands in the source, and what stands for it
INSTRUCTIONS = [
    (r'asm\("cvt\.rn\.bf16.*?\);', "y = rounded(x);"),
    (r'asm volatile\("\{\\n\.reg \.pred there;.*?: "memory"\);', "wait_for_phase(barrier, parity);"),
    (r'asm volatile\("mbarrier\.arrive\.expect_tx.*?: "memory"\);', ""),
    (r'asm volatile\("cp\.async\.bulk.*?: "memory"\);', "copy_now(barrier, to, from, bytes);"),
    (r'asm volatile\("fence\.proxy\.async.*?: "memory"\);', ""),
    (r'asm volatile\("mbarrier\.init.*?: "memory"\);', "first_phase(shared_address(barriers + threadIdx.x));"),
    (r'asm volatile\("fence\.mbarrier_init.*?: "memory"\);', ""),
    (r'asm volatile\("red\.release.*?: "memory"\);', "__atomic_fetch_add(between.met, 1u, __ATOMIC_RELEASE);"),
    (r'asm volatile\("ld\.acquire.*?: "memory"\);', "seen = others_have_met(between.met);"),
    (r'asm\("mma\.sync.*?"r"\(b0\), "r"\(b1\)\);', "multiply_as_a_warp(c, a0, a1, a2, a3, b0, b1);"),
    (r"extern __shared__ __align__\(128\) char shared\[\];", "char *shared = shared_memory;"),
    (r"__cvta_generic_to_shared\(at\)", "(std::uintptr_t)at"),
    (r"typedef [a-z ]+ (bf16|u32|u64|i64);", ""),
]


def for_a_cpu(names):
    source = "".join((KERNELS / name).read_text() for name in ["numbers.cu", *names])
    for instruction, replacement in INSTRUCTIONS:
        source = re.sub(instruction, lambda _: replacement, source, flags=re.S)
    left = [line for line in source.splitlines() if re.search(r"\basm\b", line)]
    if left:
        sys.exit(f"an instruction that is not known here: {left[0].strip()}")
    return source


def main():
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        for name, sources in [
            ("draw", ["draw.cu"]),
            ("paged", ["tile.cu", "paged.cu"]),
            ("token", ["tile.cu", "pieces.cu", "steps.cu", "attend.cu", "token.cu"]),
        ]:
            Path(folder, "kernel.cu").write_text(for_a_cpu(sources))
            program = Path(folder, name)
            # not position-independent: addresses of shared memory have 32 bits
            options = ["-std=c++20", "-O2", "-no-pie", "-pthread", "-w", f"-I{folder}", f"-I{HERE}"]
            subprocess.run(["c++", *options, HERE / f"{name}.cpp", "-o", program], check=True)
            if subprocess.run([program], timeout=1200).returncode:
                wrong.append(name)
    sys.exit(f"wrong: {', '.join(wrong)}" if wrong else 0)


main()
