#include "daemon/stacks/stack_reader.h"

#include <cxxabi.h>
#include <dwarf.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <elfutils/libdwfl.h>

namespace stoker::stacks {
namespace {

constexpr size_t kMaxFrames = 200;

// Kept by libdwfl.
Dwfl_Callbacks make_callbacks() {
  Dwfl_Callbacks callbacks{};
  callbacks.find_elf = dwfl_linux_proc_find_elf;
  callbacks.find_debuginfo = dwfl_standard_find_debuginfo;
  return callbacks;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? text.get() : name;
}

std::string hex(uint64_t number) {
  char text[20];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(number));
  return text;
}

// "c10::Foo::bar()+0x12 (libc10.so+0x3456)"
std::string describe(Dwfl* dwfl, Dwarf_Addr address) {
  Dwfl_Module* const module = dwfl_addrmodule(dwfl, address);
  if (module == nullptr) return hex(address);
  Dwarf_Addr start = 0;
  const char* path =
      dwfl_module_info(module, nullptr, &start, nullptr, nullptr, nullptr, nullptr, nullptr);
  const char* const slash = path == nullptr ? nullptr : std::strrchr(path, '/');
  const std::string place =
      std::string(slash != nullptr ? slash + 1 : (path ? path : "?")) + "+" + hex(address - start);
  GElf_Off offset = 0;
  GElf_Sym symbol{};
  const char* const name =
      dwfl_module_addrinfo(module, address, &offset, &symbol, nullptr, nullptr, nullptr);
  if (name == nullptr) return "?? (" + place + ")";
  return demangled(name) + "+" + hex(offset) + " (" + place + ")";
}

struct FrameList {
  Dwfl* dwfl = nullptr;
  std::vector<std::string> lines;
};

int add_frame(Dwfl_Frame* frame, void* argument) {
  auto& list = *static_cast<FrameList*>(argument);
  Dwarf_Addr address = 0;
  bool is_activation = false;
  if (!dwfl_frame_pc(frame, &address, &is_activation)) return DWARF_CB_ABORT;
  // A return address can be that of the next function.
  list.lines.push_back(describe(list.dwfl, is_activation ? address : address - 1));
  return list.lines.size() < kMaxFrames ? DWARF_CB_OK : DWARF_CB_ABORT;
}

}  // namespace

void StackReader::Close::operator()(Dwfl* dwfl) const { dwfl_end(dwfl); }

StackReader::StackReader(const TracedProcess& process) {
  static const Dwfl_Callbacks callbacks = make_callbacks();
  ::unsetenv("DEBUGINFOD_URLS");
  dwfl_.reset(dwfl_begin(&callbacks));
  const auto fail = [this](const char* what, int error) {
    const char* const reason = error > 0 ? std::strerror(error) : dwfl_errmsg(-1);
    problem_ = std::string(what) + ": " + (reason == nullptr ? "unknown error" : reason);
  };
  if (dwfl_ == nullptr) {
    fail("libdwfl", -1);
  } else if (const int listed = dwfl_linux_proc_report(dwfl_.get(), process.pid()); listed != 0) {
    fail("list of modules", listed);
  } else if (dwfl_report_end(dwfl_.get(), nullptr, nullptr) != 0) {
    fail("list of modules", -1);
  } else if (const int attached = dwfl_linux_proc_attach(dwfl_.get(), process.pid(),
                                                         /*assume_ptrace_stopped=*/true);
             attached != 0) {
    fail("attach", attached);
  }
}

std::vector<std::string> StackReader::frames(pid_t tid) const {
  FrameList list{.dwfl = dwfl_.get(), .lines = {}};
  (void)dwfl_errno();
  const int result = dwfl_getthread_frames(dwfl_.get(), tid, add_frame, &list);
  if (list.lines.size() >= kMaxFrames) {
    list.lines.push_back("… (more frames)");
  } else if (result != 0) {
    // Code without unwinding information, such as a kernel that was compiled at run time.
    const char* const reason = result < 0 ? dwfl_errmsg(-1) : nullptr;
    list.lines.push_back(std::string("… (the stack cannot be read further") +
                         (reason == nullptr ? "" : std::string(": ") + reason) + ")");
  }
  return list.lines;
}

}  // namespace stoker::stacks
