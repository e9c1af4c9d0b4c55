"""SlowLink: two network namespaces of this host, joined by a cable (veth) that carries at most a rate in each direction.

Needs root, and iproute2 (ip, tc). The namespaces end with the last process in them.
"""
import os
import subprocess
import sys
import time


class SlowLink:
    INTERFACE = "slow0"
    # Of tbf: more than a packet of the largest size, far less than a step sums; and a queue without losses.
    BURST = "1mb"
    QUEUE = "64mb"

    def __init__(self, rate):
        """`rate`: as of tc, "4gbit"."""
        self.rate, self.hosts = rate, []

    @staticmethod
    def address(host):
        return f"10.79.0.{host + 1}"

    def on_host(self, host):
        """The words in front of a command that runs there."""
        return ["nsenter", f"--net=/proc/{self.hosts[host].pid}/ns/net"]

    def __enter__(self):
        try:
            own = os.readlink("/proc/self/ns/net")
            for _ in range(2):
                # Ends with this process, however that ends.
                self.hosts.append(subprocess.Popen(["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"]))
                while os.readlink(f"/proc/{self.hosts[-1].pid}/ns/net") == own:
                    if self.hosts[-1].poll() is not None:
                        sys.exit("--rate: needs root")
                    time.sleep(0.01)
            first, second = (str(host.pid) for host in self.hosts)
            self.run(["ip", "link", "add", self.INTERFACE, "netns", first, "type", "veth", "peer", "name", self.INTERFACE,
                      "netns", second])
            for host in range(2):
                for command in (["ip", "link", "set", "lo", "up"],
                                ["ip", "address", "add", f"{self.address(host)}/24", "dev", self.INTERFACE],
                                ["ip", "link", "set", self.INTERFACE, "up"],
                                ["tc", "qdisc", "add", "dev", self.INTERFACE, "root", "tbf", "rate", self.rate, "burst",
                                 self.BURST, "limit", self.QUEUE]):
                    self.run([*self.on_host(host), *command])
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for host in self.hosts:
            host.kill()
            host.wait()

    @staticmethod
    def run(command):
        subprocess.run(command, check=True)
