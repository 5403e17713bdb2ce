#!/usr/bin/env python3
"""Runs a command under mpirun on hosts that are network namespaces, joined by links of a chosen rate.

Every host is a namespace of its own with one network card, a veth whose other end is a port of a
bridge in one more namespace, the hub, where mpirun runs. What a host sends passes a token bucket (tc
tbf). The machine's own interfaces are not touched, and nothing but the hosts' traffic is shaped or
counted. Needs root, iproute2 and Open MPI 4. Afterwards, also after errors and signals, everything is
gone; what a run that was killed outright left behind goes with the next one.

    sudo lab/thin_links.py --rate 100mbit -- build/wire_bench
    sudo lab/thin_links.py --rate 1gbit --then 10mbit@30 --then 1gbit@60 -- build/thinwire train ...
    sudo lab/thin_links.py --hosts 4 --rate 1gbit --ranks 8 -- build/thinwire train ...
"""
# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

PREFIX = "thinwire-"
RESOLVERS = pathlib.Path("/etc/netns")  # what `ip netns exec NAME` lays over /etc
NET = "10.87.0"


def sh(*command, check=True):
    """Runs a command; its output is shown only when it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode != 0:
        raise RuntimeError(f"{shlex.join(command)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


BITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def burst_for(rate: str) -> str:
    """What a link that was idle sends at once: what it carries in 5 ms, from 16 to 256 KiB, and up to 512 KiB above 1 Gbit/s.
    With more, short messages never wait for the link. With less, timers that fire late cost rate: 2 % at 100 Mbit/s with
    5 ms, 6 % with 2.6, 12 % with 1.3; 18 % at 10 Gbit/s with 512 KiB, 28 % with 256."""
    number, unit = rate[:-4], rate[-4:].lower()
    if unit not in BITS or not number.replace(".", "", 1).isdigit():
        return "256kb"  # tc says what is wrong with the rate, if anything is
    bits = float(number) * BITS[unit]
    most = (256 if bits <= 1e9 else 512) * 1024
    return str(int(min(max(bits / 8 * 5e-3, 16 * 1024), most)))


class Lab:
    """The hub and the hosts, from creation to removal."""

    def __init__(self, hosts, rate, burst, latency):
        self.name = f"{PREFIX}{os.getpid()}"
        self.hub = f"{self.name}-hub"
        self.hosts = [f"host{i + 1}" for i in range(hosts)]
        self.rate, self.burst, self.latency = rate, burst, latency

    def shape(self, rate):
        return ["rate", rate, "burst", self.burst or burst_for(rate), "latency", self.latency]

    def namespace(self, host):
        return f"{self.name}-{host}"

    def set_up(self):
        table = "127.0.0.1 localhost\n" + f"{NET}.254 hub\n"
        table += "".join(f"{NET}.{i + 1} {host}\n" for i, host in enumerate(self.hosts))
        self.make_namespace(self.hub, table)
        inside = ["ip", "-n", self.hub]
        sh(*inside, "link", "add", "bridge", "type", "bridge")
        sh(*inside, "address", "add", f"{NET}.254/24", "dev", "bridge")
        sh(*inside, "link", "set", "bridge", "up")
        for i, host in enumerate(self.hosts):
            space = self.namespace(host)
            self.make_namespace(space, table)
            sh("ip", "link", "add", "net0", "netns", space, "type", "veth",
               "peer", "name", host, "netns", self.hub)
            sh(*inside, "link", "set", host, "master", "bridge", "up")
            sh("ip", "-n", space, "address", "add", f"{NET}.{i + 1}/24", "dev", "net0")
            sh("ip", "-n", space, "link", "set", "net0", "up")
            sh("tc", "-n", space, "qdisc", "add", "dev", "net0", "root", "tbf",
               *self.shape(self.rate))

    def make_namespace(self, space, table):
        folder = RESOLVERS / space
        folder.mkdir(parents=True)
        (folder / "hosts").write_text(table)
        sh("ip", "netns", "add", space)
        sh("ip", "-n", space, "link", "set", "lo", "up")

    def tear_down(self):
        remove(lambda space: space.startswith(self.name + "-"))

    def change_rate(self, rate):
        for host in self.hosts:
            sh("tc", "-n", self.namespace(host), "qdisc", "change", "dev", "net0", "root", "tbf",
               *self.shape(rate))

    def sent_bytes(self):
        """What each host's card has sent since set_up, headers of all layers included."""
        return [int(sh("ip", "netns", "exec", self.namespace(host), "cat",
                       "/sys/class/net/net0/statistics/tx_bytes")) for host in self.hosts]


def namespaces():
    return [line.split()[0] for line in sh("ip", "netns", "list").splitlines() if line]


def remove(chosen):
    """Ends what runs in the chosen namespaces, then removes them."""
    spaces = [space for space in namespaces() if chosen(space)]
    for send in (signal.SIGTERM, signal.SIGKILL):
        running = [int(pid) for space in spaces
                   for pid in sh("ip", "netns", "pids", space, check=False).split()]
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, send)
        if running:
            time.sleep(0.3)
    for space in spaces:
        sh("ip", "netns", "delete", space, check=False)
    if RESOLVERS.is_dir():
        for folder in RESOLVERS.iterdir():
            if chosen(folder.name):
                shutil.rmtree(folder, ignore_errors=True)


def is_left_over(space):
    """Whether it belongs to a lab whose process is gone."""
    parts = space.split("-")
    return (space.startswith(PREFIX) and len(parts) == 3 and parts[1].isdigit()
            and not os.path.exists(f"/proc/{parts[1]}"))


def write_agent(lab, folder):
    """What mpirun calls, as it would ssh, to start a daemon on a host: AGENT HOST COMMAND...

    A host name of its own for every daemon: without it some starts hang in the launcher.
    """
    agent = pathlib.Path(folder) / "agent"
    agent.write_text(f"""#!/bin/sh
host=$1
shift
exec ip netns exec {lab.name}-"$host" unshare --uts sh -c "hostname $host; $*"
""")
    agent.chmod(0o755)
    return agent


def mpirun(lab, agent, ranks, command):
    slots = -(-ranks // len(lab.hosts))
    line = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", str(ranks),
            "--host", ",".join(f"{host}:{slots}" for host in lab.hosts)]
    for key, value in [("plm_rsh_agent", agent), ("plm_rsh_no_tree_spawn", 1), ("pml", "ob1"),
                       ("btl", "self,tcp"), ("btl_tcp_links", 2),
                       ("btl_tcp_if_include", f"{NET}.0/24"), ("oob_tcp_if_include", f"{NET}.0/24")]:
        line += ["--mca", key, str(value)]
    start = f"hostname hub; exec {shlex.join(line + command)}"
    return ["ip", "netns", "exec", lab.hub, "unshare", "--uts", "sh", "-c", start]


def later_rate(text):
    """10mbit@30 as ("10mbit", 30.0)."""
    rate, at, seconds = text.partition("@")
    if not rate or not at:
        raise argparse.ArgumentTypeError(f"{text!r} is not RATE@SECONDS, as 10mbit@30")
    return rate, float(seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, help="as many as hosts unless given")
    parser.add_argument("--rate", default="1gbit", help="of every host's link, as tc writes it")
    parser.add_argument("--burst", help="bytes that an idle link sends at once; else those of 5 ms, 16 to 256 or 512 KiB")
    parser.add_argument("--latency", default="50ms", help="longest wait in a link's queue")
    parser.add_argument("--then", action="append", default=[], type=later_rate, metavar="RATE@SECONDS",
                        help="changes the rate so many seconds after the start; may be given several times")
    parser.add_argument("--timeout", type=float, default=600, help="seconds")
    parser.add_argument("--traffic", action="store_true", help="print the bytes that each host sent")
    parser.add_argument("command", nargs="+", help="program and arguments, after --")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("thin_links: needs root, to make network namespaces")
    if not 1 <= options.hosts <= 253:
        sys.exit("thin_links: 1 to 253 hosts")
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda number, frame: sys.exit(128 + number))

    remove(is_left_over)
    lab = Lab(options.hosts, options.rate, options.burst, options.latency)
    try:
        lab.set_up()
        with tempfile.TemporaryDirectory() as folder:
            line = mpirun(lab, write_agent(lab, folder), options.ranks or options.hosts,
                          options.command)
            environment = dict(os.environ, THINWIRE_LAB_RATE=options.rate)
            failed = []

            def change(rate):
                try:
                    lab.change_rate(rate)
                except RuntimeError as error:
                    failed.append(error)

            timers = [threading.Timer(seconds, change, [rate]) for rate, seconds in options.then]
            for timer in timers:
                timer.daemon = True
                timer.start()
            try:
                status = subprocess.run(line, env=environment, timeout=options.timeout).returncode
            except subprocess.TimeoutExpired:
                sys.exit(f"thin_links: no end after {options.timeout:g} s")
            finally:
                for timer in timers:
                    timer.cancel()
        if failed:
            raise failed[0]
        if options.traffic:
            print("bytes sent by each host:", *lab.sent_bytes())
        sys.exit(status)
    except RuntimeError as error:
        sys.exit(f"thin_links: {error}")
    finally:
        lab.tear_down()


if __name__ == "__main__":
    main()
