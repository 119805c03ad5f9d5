"""Machines of one core each, as network namespaces: what stands for nodes behind slow links."""
import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

import machine

NETWORK = "10.203.77.0/24"
TOOLS = ("ip", "tc", "mpirun", "unshare", "taskset")


def check():
    """Ends the program, with one line, where namespaces cannot be made."""
    if os.geteuid():
        sys.exit("namespaces and virtual devices are made as root only")
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        sys.exit(f"{', '.join(missing)}: not found; install iproute2, openmpi-bin and util-linux")
    if len(machine.core_processors()) < 2:
        sys.exit("two ranks want a core each")


def address(node):
    return f"10.203.77.{node + 1}"


class Network:
    """So many nodes, on cores in turn. Two are joined by a pair of virtual devices, more by a switch. A node lets
    through `rate` outwards, as tc writes it. All of it is removed at the program's end, whatever the end is, or by
    remove()."""

    def __init__(self, nodes, rate):
        cores = machine.core_processors()
        self.cores = [cores[node % len(cores)] for node in range(nodes)]
        names = [chr(ord("a") + node) for node in range(nodes)]
        self.hosts = [f"trireme-{name}" for name in names]
        self.spaces = [f"trireme-{os.getpid()}-{name}" for name in names]
        self.devices = [f"tr{os.getpid()}{name}" for name in names]
        self.switch = [f"trireme-{os.getpid()}-switch"] if nodes > 2 else []
        self.directory = tempfile.mkdtemp(prefix="network-")
        self.rate = rate
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(1))
        atexit.register(self.remove)
        self.make()

    def make(self):
        for space in self.spaces + self.switch:
            subprocess.run(["ip", "netns", "add", space], check=True)
        if self.switch:
            self.join_by_switch(self.switch[0])
        else:
            (a, b), (one, other) = self.spaces, self.devices
            subprocess.run(["ip", "link", "add", one, "netns", a, "type", "veth", "peer", "name", other, "netns", b],
                           check=True)
        for node, (space, device) in enumerate(zip(self.spaces, self.devices)):
            for words in (["addr", "add", f"{address(node)}/24", "dev", device], ["link", "set", device, "up"],
                          ["link", "set", "lo", "up"]):
                subprocess.run(["ip", "-n", space, *words], check=True)
            subprocess.run(["tc", "-n", space, "qdisc", "add", "dev", device, "root", "tbf", "rate", self.rate,
                            "burst", "128kb", "latency", "20ms"], check=True)
        self.agent = os.path.join(self.directory, "agent")
        with open(self.agent, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\nnode=$1\nshift\nexport COMMAND="$*"\ncase $node in\n')
            for node in range(len(self.spaces)):
                file.write(f"{address(node)}) exec {' '.join(self.inside(node))} "
                           f"sh -c 'hostname {self.hosts[node]}; eval \"$COMMAND\"' ;;\n")
            file.write("esac\n")
        os.chmod(self.agent, 0o755)

    def join_by_switch(self, switch):
        subprocess.run(["ip", "-n", switch, "link", "add", "switch", "type", "bridge"], check=True)
        subprocess.run(["ip", "-n", switch, "link", "set", "switch", "up"], check=True)
        for space, device in zip(self.spaces, self.devices):
            subprocess.run(["ip", "link", "add", device, "netns", space, "type", "veth", "peer", "name", device,
                            "netns", switch], check=True)
            subprocess.run(["ip", "-n", switch, "link", "set", device, "master", "switch", "up"], check=True)

    def inside(self, node):
        return ["ip", "netns", "exec", self.spaces[node], "unshare", "--uts", "taskset", "-c", str(self.cores[node])]

    def command(self, program):
        """What runs a rank of the program on each node; mpirun starts those of other nodes as it would over ssh."""
        settings = {"plm": "rsh", "plm_rsh_agent": self.agent, "plm_rsh_no_tree_spawn": "1", "pml": "ob1",
                    "btl": "tcp,self", "btl_tcp_if_include": NETWORK, "oob_tcp_if_include": NETWORK}
        words = ["mpirun", "--allow-run-as-root", "-n", str(len(self.spaces)), "--host",
                 ",".join(f"{address(node)}:1" for node in range(len(self.spaces))), "--map-by", "node",
                 "--bind-to", "none"]
        for key, value in settings.items():
            words += ["--mca", key, value]
        return self.inside(0) + ["sh", "-c", f'hostname {self.hosts[0]}; exec "$@"', "sh", *words, *program]

    def sent(self):
        """Bytes that each node has sent since the beginning, headers included."""
        totals = []
        for space, device in zip(self.spaces, self.devices):
            said = subprocess.run(["ip", "-n", space, "-s", "-j", "link", "show", "dev", device], text=True, check=True,
                                  stdout=subprocess.PIPE).stdout
            totals.append(json.loads(said)[0]["stats64"]["tx"]["bytes"])
        return totals

    def remove(self):
        handlers = {number: signal.signal(number, signal.SIG_IGN)
                    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        for space in self.spaces + self.switch:
            if not os.path.exists(f"/run/netns/{space}"):
                continue
            pids = subprocess.run(["ip", "netns", "pids", space], text=True, check=True, stdout=subprocess.PIPE).stdout
            for process in pids.split():
                try:
                    os.kill(int(process), signal.SIGKILL)
                except ProcessLookupError:
                    pass
            subprocess.run(["ip", "netns", "del", space], check=False)
        shutil.rmtree(self.directory, ignore_errors=True)
        for number, handler in handlers.items():
            signal.signal(number, handler)
