// machine: the processor and the operating system of this process, in words, for the records of a run.
//
// Threads: pure functions of the system's files. Blocking: they read small files. Errors: what cannot
// be read is missing in the text.
#pragma once

#include <string>

namespace stoker {

// "2 x AMD EPYC, family 25, model 17": the cores that this process can keep busy, each one of this
// type. Hypervisors shorten the name, and the model number identifies the generation.
std::string describe_processor(const std::string& cpuinfo = "/proc/cpuinfo");

// Of this host since it was started: another text after a reboot and on another host, the same in its containers.
std::string identify_boot(const std::string& boot_id = "/proc/sys/kernel/random/boot_id");

// "Debian GNU/Linux 12 (bookworm), Linux 6.1.0-28-amd64"
std::string describe_system(const std::string& os_release = "/etc/os-release");

}  // namespace stoker
