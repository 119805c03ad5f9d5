"""What tells two builds apart: the sources, the compiler and its flags, but not where they lie. Works without git."""
import os
import re
import subprocess
import tempfile

SCRIPT = os.path.join(os.environ["TRIREME_SOURCE"], "cmake", "identify.cmake")


def identity(top, compiler="GNU 12.2.0", flags="-O3", **files):
    """Returns the identity of a build from a tree of these files below `top`."""
    for name, content in files.items():
        os.makedirs(os.path.join(top, name), exist_ok=True)
        with open(os.path.join(top, name, "file.c"), "w", encoding="utf-8") as f:
            f.write(content)
    inputs, output = (os.path.join(top, name) for name in ("inputs.cmake", "out.c"))
    paths = ";".join(f"{top}/{name}/file.c" for name in files)
    with open(inputs, "w", encoding="utf-8") as f:
        f.write(f'set(PROJECT_SOURCE_DIR "{top}")\nset(files "{paths}")\nset(compiler "{compiler}")\n'
                f'set(flags "{flags}")\n')
    subprocess.run(["cmake", f"-Dinputs={inputs}", f"-Doutput={output}", "-P", SCRIPT], check=True)
    with open(output, encoding="utf-8") as f:
        return re.search(r'"(build [0-9a-f]{12}, .*)";', f.read())[1]


def main():
    with tempfile.TemporaryDirectory() as here, tempfile.TemporaryDirectory() as there:
        first = identity(here, a="int a;", b="int b;")
        others = [identity(there, a="int a;", b="int c;"), identity(there, b="int a;", a="int b;"),
                  identity(there, a="int a;", c="int b;"), identity(there, a="int a;", b="int b;", flags="-O2"),
                  identity(there, a="int a;", b="int b;", compiler="Clang 14.0.6")]
        assert first.endswith(", GNU 12.2.0") and others[-1].endswith(", Clang 14.0.6"), (first, others)
        assert len({first, *others}) == 6, (first, others)
        assert identity(there, a="int a;", b="int b;") == first


if __name__ == "__main__":
    main()
