"""Installs to a temporary prefix, then builds and runs another program against it by pkg-config and by CMake."""
import os
import shlex
import subprocess
import sys
import tempfile

BUILD, SOURCE = os.environ["TRIREME_BUILD"], os.environ["TRIREME_SOURCE"]
HERE = os.path.join(SOURCE, "tests", "install")


def run(*command, **more):
    result = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {result.returncode}\n{result.stdout}{result.stderr}")
    return result.stdout


def found(prefix, name):
    paths = [os.path.join(at, name) for at, _, names in os.walk(prefix) if name in names]
    if len(paths) != 1:
        sys.exit(f"{name} was installed {len(paths)} times, not once")
    return paths[0]


def version_of_header():
    with open(os.path.join(SOURCE, "include", "trireme.h"), encoding="utf-8") as header:
        return next(line.split('"')[1] for line in header if "define TRIREME_VERSION" in line)


def check_names(library, *kind):
    """Checks that every name that a library shows to the linker begins with trireme_. Names that begin with a dot, as
    clang gives to OpenMP's locks, do not count: no program can have them."""
    lines = run("nm", "-P", "--defined-only", *kind, library).splitlines()
    symbols = [line.split() for line in lines if not line.endswith(":")]  # which names an archive's part
    foreign = [symbol[0] for symbol in symbols if len(symbol) > 1 and not symbol[0].startswith(("trireme_", "."))]
    if foreign:
        sys.exit(f"{library}: names that should be hidden: {' '.join(foreign[:10])}")


def main():
    if os.environ.get("TRIREME_SANITIZE"):
        print("skipped: the other program is built without sanitizers")
        return 77
    version = version_of_header()
    with tempfile.TemporaryDirectory(prefix="trireme-install-") as top:
        # Installed to one prefix and moved to another: nothing may depend on where it was installed.
        run("cmake", "--install", BUILD, "--prefix", os.path.join(top, "first"))
        prefix = os.path.join(top, "second")
        os.rename(os.path.join(top, "first"), prefix)
        shared, static = found(prefix, "libtrireme.so"), found(prefix, "libtrireme.a")
        check_names(shared, "--dynamic")
        check_names(static, "--extern-only")

        examples = os.listdir(os.path.join(SOURCE, "examples"))
        for name in examples:
            if os.path.isfile(os.path.join(SOURCE, "examples", name)):
                found(os.path.join(prefix, "share", "trireme", "examples"), name)

        for shell, path in ("bash", "bash-completion/completions"), ("zsh", "zsh/site-functions"):
            name = "trireme" if shell == "bash" else "_trireme"
            with open(found(os.path.join(prefix, "share", path), name), encoding="utf-8") as file:
                assert file.read() == run(os.path.join(prefix, "bin", "trireme"), "help", "completion", shell)

        libraries = os.path.dirname(shared)
        environment = {**os.environ, "LD_LIBRARY_PATH": libraries,
                       "PKG_CONFIG_PATH": os.path.dirname(found(prefix, "trireme.pc"))}
        if run("pkg-config", "--modversion", "trireme", env=environment).strip() != version:
            sys.exit("trireme.pc has another version than the header")
        program = os.path.join(top, "program")
        flags = shlex.split(run("pkg-config", "--cflags", "--libs", "trireme", env=environment))
        private = shlex.split(run("pkg-config", "--static", "--libs", "trireme", env=environment))
        # By name, so that a fully static program takes the static ones.
        paths = [word for word in private if not word.startswith("-")]
        if paths:
            sys.exit(f"pkg-config --static gives files instead of names: {' '.join(paths)}")
        private[private.index("-ltrireme")] = "-Wl,--whole-archive,-l:libtrireme.a,--no-whole-archive"
        for libs in (flags, flags[:1] + private):
            run("cc", os.path.join(HERE, "program.c"), "-o", program, *libs)
            if run(program, top, env=environment).strip() != version:
                sys.exit("the program printed something else than the version")

        build = os.path.join(top, "build")
        run("cmake", "-S", HERE, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix};{os.environ.get('PREFIX_PATH', '')}",
            f"-DEXPECTED_VERSION={version}")
        run("cmake", "--build", build)
        for name in ("with_shared", "with_static"):
            if run(os.path.join(build, name), top).strip() != version:
                sys.exit(f"{name} printed something else than the version")
    return 0


if __name__ == "__main__":
    sys.exit(main())
