"""Describes this machine, for the head of a table of results."""
import atexit
import ctypes
import functools
import os
import re
import shutil
import subprocess
import tempfile
import time

DISTURBED = 0.05  # share of the processors' time that others may take


def output_of(*command):
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
                              env={**os.environ, "LC_ALL": "C"}).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def first_line(text):
    return text.split("\n", maxsplit=1)[0].strip()


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


def memory(field):
    """MemTotal or MemAvailable, in bytes."""
    found = re.search(rf"^{field}:\s*(\d+) kB", read("/proc/meminfo"), re.M)
    return 1024 * int(found[1]) if found else 0


def core_processors():
    """One processor of each core that we may use."""
    topology = "/sys/devices/system/cpu/cpu{}/topology/"
    first = {}
    for processor in sorted(os.sched_getaffinity(0)):
        directory = topology.format(processor)
        core = read(directory + "physical_package_id"), read(directory + "core_id") or processor
        first.setdefault(core, processor)
    return list(first.values())


def cores():
    """How many cores we may use, and how many processors they are: two threads of one core count once."""
    return len(core_processors()), len(os.sched_getaffinity(0))


def has_avx512():
    return " avx512f" in read("/proc/cpuinfo")


@functools.lru_cache
def tile_leaf():
    """What lets PyTorch use matrix units where CPUID does not tell their size (bench/tile_leaf.c): settings of the
    environment, elsewhere none."""
    if " amx_bf16" not in read("/proc/cpuinfo"):
        return {}
    directory = tempfile.mkdtemp(prefix="tile_leaf.")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    library = os.path.join(directory, "tile_leaf.so")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tile_leaf.c")
    output_of("cc", "-O2", "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", library, source)
    hidden = os.path.exists(library) and ctypes.CDLL(library).tile_leaf_hidden()
    return {"LD_PRELOAD": library, "TILE_LEAF": "1"} if hidden else {}


class Watch:
    """How much of the processors' time others took since it was made. Time of our children counts once they ended."""

    def __init__(self):
        self.begin, self.busy, self.own = time.monotonic(), self.busy_seconds(), self.own_seconds()

    @staticmethod
    def busy_seconds():
        user, nice, system, _, _, irq, softirq, steal = map(int, read("/proc/stat").split()[1:9])
        return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")

    @staticmethod
    def own_seconds():
        return sum(os.times()[:4])

    def others(self):
        elapsed = time.monotonic() - self.begin
        others = self.busy_seconds() - self.busy - (self.own_seconds() - self.own)
        return max(0.0, others / elapsed / os.cpu_count())


def wait_until_idle(seconds):
    """Until others leave the processors alone, for so many seconds at most."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        watch = Watch()
        time.sleep(2)
        if watch.others() < DISTURBED:
            return


def describe(build, program):
    """Pairs of a name and a value."""
    cpu = dict(re.findall(r"^([^:\n]+):\s*(.*)$", output_of("lscpu"), re.M))
    flags = cpu.get("Flags", "").split()
    vectors = [f for f in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16") if f in flags]
    physical, logical = cores()
    cache = output_of("sed", "-n", "s/^CMAKE_C_COMPILER:[A-Z]*=//p", os.path.join(build, "CMakeCache.txt"))
    libraries = re.findall(r"=> (\S+)", output_of("ldd", program))
    system = re.search(r'^PRETTY_NAME="?([^"\n]*)', read("/etc/os-release"), re.M)
    return [
        ("processor", ", ".join([cpu.get("Model name", "?"),
                                 f"family {cpu.get('CPU family', '?')} model {cpu.get('Model', '?')}", *vectors])),
        ("cores", f"{physical}" + (f" with {logical} threads" if logical != physical else "")),
        ("caches", ", ".join(f"{level} {cpu.get(level + ' cache', '?')}" for level in ("L1d", "L2", "L3"))),
        ("memory", f"{memory('MemTotal') / 1e9:.1f} GB"),
        ("system", f"{system[1] if system else '?'}, Linux {os.uname().release.split('-', maxsplit=1)[0]}, "
                   f"{os.confstr('CS_GNU_LIBC_VERSION') or 'libc unknown'}"),
        ("huge pages", first_line(read("/sys/kernel/mm/transparent_hugepage/enabled")) or "?"),
        ("compiler", first_line(output_of(cache or "cc", "--version"))),
        ("libraries", ", ".join(sorted(os.path.basename(os.path.realpath(path)) for path in libraries))),
    ]


def commit(root):
    name = output_of("git", "-C", root, "rev-parse", "--short=12", "HEAD") or "unknown"
    changed = output_of("git", "-C", root, "status", "--porcelain", "--untracked-files=no")
    return name + (" with changes" if changed else "")
