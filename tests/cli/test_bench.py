"""What the scripts of bench/ and tools/ refuse, in one line and before anything is measured or built."""

import os
import shutil
import subprocess
import sys

import tool

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench")
NAME = f"test-{os.getpid()}"


def refused(code, line, script, *arguments):
    """Asserts that a script ends with this status and last line, without a traceback and without standard output."""
    process = subprocess.run([sys.executable, os.path.join(BENCH, script), *arguments], text=True, capture_output=True,
                             timeout=tool.TIMEOUT, check=False)
    assert process.returncode == code, (script, arguments, process)
    assert process.stderr.endswith(f"{line}\n") and "Traceback" not in process.stderr, process.stderr
    assert not process.stdout, process.stdout


def test_no_checkout():
    os.mkdir("empty")
    line = "empty has no train_gpt2.c: give a checkout of llm.c"
    refused(2, f"run: error: argument --llm_c: {line}", "run", "llm_c", "--llm_c=empty", f"--name={NAME}")
    refused(2, f"llm_c.py: error: argument checkout: {line}", "llm_c.py", "empty")


def test_other_checkouts():
    os.makedirs("other/llmc")
    tool.write("other/train_gpt2.c", "none\n")
    tool.write("other/Makefile", "train_gpt2:\n\tfalse\n")
    if shutil.which("gcc") or shutil.which("clang"):
        refused(1, "matmul_forward and matmul_backward look different: no BLAS can replace them", "llm_c.py", "other")
    tool.write("other/train_gpt2.c", "void matmul_forward(int n) {\n}\nvoid matmul_backward(int n) {\n}\n")
    refused(1, "other: neither gcc nor clang builds train_gpt2", "llm_c.py", "other")


def test_nothing_to_measure():
    refused(1, "nothing of that can be measured here", "run", "llm_c", "pytorch", "--python=/none", f"--name={NAME}")
    refused(2, "run: error: argument --rounds: 0 is not a number from 1 on", "run", "own", "--rounds=0")
    refused(2, "llm_c.py: error: argument --steps: -1 is not a number from 1 on", "llm_c.py", "--steps=-1", ".")


def test_missing_programs():
    """Each script wants two programs: one of them is not enough."""
    path = os.path.abspath("bin")
    os.makedirs("arm/usr")
    os.mkdir(path)
    for name in ("dirname", "true"):
        os.symlink(shutil.which(name), os.path.join(path, name))
    for script, programs in (("try_arm64", ("aarch64-linux-gnu-gcc", "qemu-aarch64")),
                             ("try_mpich", ("mpicc.mpich", "mpirun.mpich"))):
        for program in programs:
            os.symlink("true", os.path.join(path, program))
            process = subprocess.run([os.path.join(BENCH, "../tools", script), "arm"], text=True, capture_output=True,
                                     env={"PATH": path}, timeout=tool.TIMEOUT, check=False)
            os.remove(os.path.join(path, program))
            assert process.returncode == 77 and not process.stdout, (script, program, process)
            assert f"{script}: install the Debian packages " in process.stderr, process.stderr


def test_headers_of_others():
    """Other people's files beside our sources, such as a Python environment, are neither checked nor changed."""
    text = "int   main ( ) {return 0;}\n"
    for folder in "tools", "bench", "fuzz", "include", "src", "tests", "venv":
        os.mkdir(folder)
    shutil.copy(os.path.join(BENCH, "../tools/check_format"), "tools")
    shutil.copy(os.path.join(BENCH, "../.clang-format"), ".")
    tool.write("src/ours.c", "int main(void) {\n    return 0;\n}\n")
    tool.write("venv/theirs.h", text)
    for option in [], ["--fix"]:
        process = subprocess.run(["tools/check_format", *option], timeout=tool.TIMEOUT, check=False)
        assert process.returncode in (0, 77) and tool.read("venv/theirs.h") == text.encode(), process


tool.main(globals())
