// What a sandboxed process can and cannot do; each call runs in a separate process.
#include "feeder/sandbox.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <linux/memfd.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <new>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "feeder/syscall_filter.h"
#include "shared/base/file.h"
#include "shared/data/stream/byte_input.h"
#include "shared/data/stream/spool_folder.h"
#include "shared/ring/segment.h"
#include "tests/support/eventually.h"
#include "tests/support/packed_bytes.h"
#include "tests/support/temporary_directory.h"

namespace stoker::feeder {
namespace {

struct ProcessExit {
  int signal = 0;
  int exit_code = -1;
  uint64_t denied_syscall = 0;  // number + 1
};

// How a process ends that enters the sandbox and then calls `function`; its exit code is the return
// value of `function`.
ProcessExit run_in_sandbox(const std::function<int()>& function,
                           const SandboxOptions& options = {}) {
  auto shared = ring::Segment::create(sizeof(uint64_t));
  EXPECT_TRUE(shared.ok());
  auto& word = *reinterpret_cast<uint64_t*>(shared->bytes().data());
  const pid_t pid = ::fork();
  if (pid == 0) {
    if (!disable_core_dumps_and_privileges().ok() || !enter_sandbox(options, word).ok())
      ::_exit(99);
    ::_exit(function());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return {.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0,
          .exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .denied_syscall = word};
}

class SandboxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers need system calls that the sandbox denies";
  }
};

struct ForbiddenCall {
  const char* operation;
  long number;
  std::function<long()> call;
};

long call_of(long number, auto... arguments) { return ::syscall(number, arguments...); }

const std::vector<ForbiddenCall>& forbidden_calls() {
  static const std::vector<ForbiddenCall> calls{
      {"a socket", SYS_socket, [] { return ::socket(AF_INET, SOCK_STREAM, 0); }},
      {"a pair of sockets", SYS_socketpair,
       [] {
         int fds[2];
         return ::socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
       }},
      {"a connection", SYS_connect, [] { return call_of(SYS_connect, 3, nullptr, 0); }},
      {"a program", SYS_execve, [] { return call_of(SYS_execve, "/bin/true", nullptr, nullptr); }},
      {"a program by descriptor", SYS_execveat,
       [] { return call_of(SYS_execveat, 3, "", nullptr, nullptr, AT_EMPTY_PATH); }},
      {"a process", SYS_clone, [] { return call_of(SYS_clone, SIGCHLD, 0, 0, 0, 0); }},
      {"a file for writing", SYS_openat, [] { return ::open("/tmp/stoker-sandboxed", O_WRONLY); }},
      {"a file for reading and writing", SYS_openat, [] { return ::open("/dev/null", O_RDWR); }},
      {"a new file", SYS_openat,
       [] { return ::open("/tmp/stoker-sandboxed", O_RDONLY | O_CREAT, 0600); }},
      {"a file made empty", SYS_openat,
       [] { return ::open("/tmp/stoker-sandboxed", O_RDONLY | O_TRUNC); }},
      {"a file deleted", SYS_unlinkat,
       [] { return call_of(SYS_unlinkat, AT_FDCWD, "/tmp/stoker-sandboxed", 0); }},
      {"a file renamed", SYS_renameat2,
       [] { return call_of(SYS_renameat2, AT_FDCWD, "/tmp/a", AT_FDCWD, "/tmp/b", 0); }},
      {"a folder", SYS_mkdirat, [] { return call_of(SYS_mkdirat, AT_FDCWD, "/tmp/a", 0700); }},
      {"a mode", SYS_fchmodat, [] { return call_of(SYS_fchmodat, AT_FDCWD, "/tmp/a", 0777); }},
      {"a write elsewhere", SYS_write, [] { return ::write(STDOUT_FILENO, "x", 1); }},
      {"a write into a file", SYS_pwrite64, [] { return ::pwrite(STDERR_FILENO, "x", 1, 0); }},
      {"a signal to another", SYS_kill, [] { return ::kill(::getppid(), 0); }},
      {"a signal to another's thread", SYS_tgkill,
       [] { return call_of(SYS_tgkill, ::getppid(), ::getppid(), 0); }},
      {"read of another process", SYS_ptrace,
       [] { return call_of(SYS_ptrace, 16, ::getppid(), 0, 0); }},
      {"another's memory", SYS_process_vm_writev,
       [] { return call_of(SYS_process_vm_writev, ::getppid(), nullptr, 0, nullptr, 0, 0); }},
      {"memory to be executed", SYS_mmap,
       [] {
         return ::mmap(nullptr, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                MAP_FAILED;
       }},
      {"memory made executable", SYS_mprotect,
       [] { return call_of(SYS_mprotect, nullptr, 4096, PROT_EXEC); }},
      {"a file without a name", SYS_memfd_create, [] { return ::memfd_create("x", MFD_CLOEXEC); }},
      {"a queue to the kernel", SYS_io_uring_setup,
       [] { return call_of(SYS_io_uring_setup, 8, nullptr); }},
      {"a program in the kernel", SYS_bpf, [] { return call_of(SYS_bpf, 0, nullptr, 0); }},
      {"a higher limit", SYS_prlimit64,
       [] {
         const rlimit none{RLIM_INFINITY, RLIM_INFINITY};
         return ::setrlimit(RLIMIT_AS, &none);
       }},
      {"another handler", SYS_rt_sigaction, [] { return ::signal(SIGSYS, SIG_IGN) == SIG_ERR; }},
      {"another filter", SYS_seccomp, [] { return call_of(SYS_seccomp, 1, 0, nullptr); }},
      {"keys typed on a terminal", SYS_ioctl,
       [] { return call_of(SYS_ioctl, 0, 0x5412 /* TIOCSTI */, "x"); }},
      {"a core dump", SYS_prctl, [] { return ::prctl(PR_SET_DUMPABLE, 1); }},
      {"another root", SYS_chroot, [] { return ::chroot("/"); }},
      {"another user", SYS_setuid, [] { return call_of(SYS_setuid, 0); }},
  };
  return calls;
}

TEST_F(SandboxTest, KillsProcessOnDeniedSyscallAndReportsIt) {
  for (const ForbiddenCall& forbidden : forbidden_calls()) {
    const ProcessExit ending = run_in_sandbox([&] {
      forbidden.call();
      return 0;
    });
    EXPECT_EQ(ending.signal, SIGSYS) << forbidden.operation << ": exit code " << ending.exit_code;
    EXPECT_EQ(ending.denied_syscall, static_cast<uint64_t>(forbidden.number) + 1)
        << forbidden.operation;
  }
}

TEST_F(SandboxTest, AllowsWritesOnlyToCacheFiles) {
  const int writable = ::memfd_create("writable", MFD_CLOEXEC),
            other = ::memfd_create("other", MFD_CLOEXEC);
  ASSERT_TRUE(writable >= 0 && other >= 0);
  ASSERT_EQ(::ftruncate(writable, 6), 0);
  const SandboxOptions options{.writable_fds = {writable}};
  const ProcessExit allowed =
      run_in_sandbox([&] { return ::pwrite(writable, "x", 1, 5) == 1 ? 0 : 1; }, options);
  EXPECT_EQ(allowed.exit_code, 0) << "signal " << allowed.signal;
  char byte = 0;
  EXPECT_EQ(::pread(writable, &byte, 1, 5), 1);
  EXPECT_EQ(byte, 'x');
  for (const auto& call : std::vector<std::function<long()>>{
           [&] { return ::pwrite(other, "x", 1, 0); }, [&] { return ::write(writable, "x", 1); },
           [&] { return ::ftruncate(writable, 0); }})
    EXPECT_EQ(run_in_sandbox([&] { return call() < 0 ? 1 : 0; }, options).signal, SIGSYS);
  ::close(writable);
  ::close(other);
}

TEST_F(SandboxTest, HasRoomForCacheFileOfEachDataset) {
  constexpr size_t kMaxDatasets = 64;  // of a configuration
  const std::vector<int> writable(kMaxDatasets, STDERR_FILENO);
  const ProcessExit ending = run_in_sandbox(
      [] { return ::socket(AF_UNIX, SOCK_STREAM, 0) >= 0 ? 0 : 1; }, {.writable_fds = writable});
  EXPECT_EQ(ending.signal, SIGSYS) << "exit code " << ending.exit_code;
}

TEST_F(SandboxTest, FailsIfFilterExceedsLimitOfKernel) {
  const std::vector<int> writable(1000, STDERR_FILENO);
  EXPECT_GT(filter_program(1, writable).size(), static_cast<size_t>(BPF_MAXINSNS));
  const ProcessExit ending = run_in_sandbox([] { return 0; }, {.writable_fds = writable});
  EXPECT_EQ(ending.exit_code, 99) << "ran without a sandbox";
}

TEST_F(SandboxTest, DeniesWritesBeyondEndOfCacheFile) {
  constexpr uint64_t kWord = uint64_t{1} << 32;
  struct Write {
    uint64_t size, offset, count;
    bool is_allowed;
  };
  for (const Write& write : std::vector<Write>{{10, 0, 10, true},
                                               {10, 9, 1, true},
                                               {10, 10, 0, true},
                                               {10, 0, 11, false},
                                               {10, 10, 1, false},
                                               {10, kWord, 1, false},
                                               {10, kWord - 1, 1, false},
                                               {10, 0, kWord, false},
                                               {0, 0, 1, false},
                                               {kWord + 10, 20, 10, true},
                                               {kWord + 10, kWord - 1, 1, true},
                                               {kWord + 10, kWord - 2, 12, true},
                                               {kWord + 10, kWord + 9, 1, true},
                                               {kWord + 10, kWord - 2, 13, false},
                                               {kWord + 10, kWord + 9, 2, false},
                                               {kWord + 10, 2 * kWord - 1, 1, false},
                                               {kWord + 10, 2 * kWord, 1, false}}) {
    const UniqueFd file(::memfd_create("cache", MFD_CLOEXEC));
    ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(write.size)), 0);
    const std::vector<char> bytes(64, 'x');
    const ProcessExit ending = run_in_sandbox(
        [&] {
          const ssize_t done =
              ::pwrite(file.get(), bytes.data(), write.count, static_cast<off_t>(write.offset));
          return done == static_cast<ssize_t>(write.count) ? 0 : 1;
        },
        {.writable_fds = {file.get()}});
    EXPECT_EQ(ending.signal, write.is_allowed ? 0 : SIGSYS)
        << write.count << " bytes at " << write.offset << " of " << write.size;
    EXPECT_EQ(ending.exit_code, write.is_allowed ? 0 : -1);
  }
}

TEST_F(SandboxTest, DeniesOverwritingFileOfStandardError) {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    for (const auto& call : std::vector<std::function<long()>>{
             [&] { return ::lseek(fd, 0, SEEK_SET); },
             [&] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); },
             [&] {
               return ::mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED;
             }})
      EXPECT_EQ(run_in_sandbox([&] { return call() < 0 ? 1 : 0; }).signal, SIGSYS) << fd;
  }
  const UniqueFd other(::memfd_create("other", MFD_CLOEXEC));
  EXPECT_EQ(
      run_in_sandbox([&] { return ::lseek(other.get(), 3, SEEK_SET) == 3 ? 0 : 1; }).exit_code, 0);
}

TEST_F(SandboxTest, AllowsRepliesOnlyOnTheirSocket) {
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const SandboxOptions options{.reply_fd = pair[1]};
  const ProcessExit allowed = run_in_sandbox(
      [&] {
        char byte = 0;
        const bool is_sent = ::write(pair[1], "x", 1) == 1;
        return is_sent && ::read(pair[0], &byte, 1) == 1 && byte == 'x' ? 0 : 1;
      },
      options);
  EXPECT_EQ(allowed.exit_code, 0) << "signal " << allowed.signal;
  msghdr message{};
  for (const auto& call : std::vector<std::function<long()>>{
           [&] { return ::write(pair[0], "x", 1); }, [&] { return ::send(pair[1], "x", 1, 0); },
           [&] { return ::sendmsg(pair[1], &message, 0); },  // could pass descriptors
           [&] { return ::pwrite(pair[1], "x", 1, 0); }})
    EXPECT_EQ(run_in_sandbox([&] { return call() < 0 ? 1 : 0; }, options).signal, SIGSYS);
  for (const int fd : pair) ::close(fd);
}

// ---- Producers

class ProducerSandboxTest : public SandboxTest {
 protected:
  // Listens at an address that the kernel chooses.
  static UniqueFd listening() {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(sa_family_t)),
              0);
    EXPECT_EQ(::listen(fd.get(), 4), 0);
    return fd;
  }
  static UniqueFd connected(const UniqueFd& to) {
    sockaddr_un address{};
    socklen_t length = sizeof address;
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::getsockname(to.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length), 0);
    return fd;
  }
};

TEST_F(ProducerSandboxTest, AllowsConnectionsOnlyOnTheirSocket) {
  const UniqueFd socket = listening(), other = listening();
  const UniqueFd producer = connected(socket), other_producer = connected(other);
  const SandboxOptions options{.listening_fd = socket.get()};
  const ProcessExit allowed = run_in_sandbox(
      [&] {
        const int fd = ::accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC);
        ucred peer{};
        socklen_t size = sizeof peer;
        const bool is_known = ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
        return is_known && ::send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1 &&
                       ::shutdown(fd, SHUT_RD) == 0
                   ? 0
                   : 1;
      },
      options);
  EXPECT_EQ(allowed.exit_code, 0) << "signal " << allowed.signal;
  sockaddr_un address{};
  msghdr message{};
  int value = 1;
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  for (const auto& call : std::vector<std::function<long()>>{
           [&] { return ::accept4(other.get(), nullptr, nullptr, 0); },
           [&] {
             return ::sendto(producer.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT, to,
                             sizeof address);
           },
           [&] { return ::send(producer.get(), "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT | MSG_OOB); },
           [&] { return ::sendmsg(producer.get(), &message, 0); },
           [&] { return ::shutdown(producer.get(), SHUT_WR); },
           [&] { return ::connect(producer.get(), to, sizeof address); },
           [&] { return ::socket(AF_UNIX, SOCK_STREAM, 0); },
           [&] {
             return ::setsockopt(producer.get(), SOL_SOCKET, SO_SNDBUF, &value, sizeof value);
           },
           [&] { return ::write(producer.get(), "x", 1); }})
    EXPECT_EQ(run_in_sandbox([&] { return call() < 0 ? 1 : 0; }, options).signal, SIGSYS);
}

TEST_F(ProducerSandboxTest, DeniesConnectionsWithoutTheirSocket) {
  const UniqueFd socket = listening();
  const UniqueFd producer = connected(socket);
  for (const auto& call : std::vector<std::function<long()>>{
           [&] { return ::accept4(socket.get(), nullptr, nullptr, 0); },
           [&] { return ::send(producer.get(), "x", 1, 0); },
           [&] { return ::shutdown(producer.get(), SHUT_RD); }})
    EXPECT_EQ(run_in_sandbox([&] { return call() < 0 ? 1 : 0; }).signal, SIGSYS);
}

TEST_F(SandboxTest, AllowsAllSyscallsWithoutFilter) {
  const ProcessExit ending = run_in_sandbox(
      [] { return ::socket(AF_UNIX, SOCK_STREAM, 0) >= 0 ? 0 : 1; }, {.filter = false});
  EXPECT_EQ(ending.exit_code, 0);
}

TEST_F(SandboxTest, KillsProcessOnDeniedSyscallOfAnyThread) {
  const ProcessExit ending = run_in_sandbox([] {
    std::jthread([] { (void)::socket(AF_INET, SOCK_STREAM, 0); }).join();
    return 0;
  });
  EXPECT_EQ(ending.signal, SIGSYS);
}

// Opens the memory of a child with the same unprivileged user: 0, or the error. `initialize` runs in
// the child before.
int open_memory_of_child(const std::function<bool()>& initialize) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    constexpr uid_t kUnprivileged = 65534;
    if (::geteuid() == 0 && ::setresuid(kUnprivileged, kUnprivileged, kUnprivileged) != 0)
      ::_exit(255);
    int ready[2];
    if (::pipe(ready) != 0) ::_exit(255);
    const pid_t child = ::fork();
    if (child == 0) {
      ::prctl(PR_SET_DUMPABLE, 1);  // as after execve()
      if (!initialize() || ::write(ready[1], "x", 1) != 1) ::_exit(1);
      ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    const bool is_ready = ::read(ready[0], &byte, 1) == 1;
    const int fd = ::open(("/proc/" + std::to_string(child) + "/mem").c_str(), O_RDONLY);
    const int error = fd >= 0 ? 0 : errno;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::_exit(is_ready ? error : 255);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(SandboxTest, HidesMemoryFromOtherProcessesOfSameUser) {
  EXPECT_EQ(open_memory_of_child([] { return true; }), 0);
  EXPECT_EQ(open_memory_of_child([] { return disable_core_dumps_and_privileges().ok(); }), EACCES);
}

TEST_F(SandboxTest, RestrictsThreadsStartedBefore) {
  auto shared = ring::Segment::create(2 * sizeof(uint64_t));
  ASSERT_TRUE(shared.ok());
  auto* words = reinterpret_cast<uint64_t*>(shared->bytes().data());
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::atomic<bool> bound{false};
    std::jthread thread([&] {
      bound.wait(false);
      (void)::socket(AF_INET, SOCK_STREAM, 0);
    });
    if (!disable_core_dumps_and_privileges().ok() || !enter_sandbox({}, words[0]).ok()) ::_exit(99);
    bound = true;
    bound.notify_all();
    thread.join();
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS) << status;
}

TEST_F(SandboxTest, AllowsSyscallsNeededForReading) {
  const ProcessExit ending = run_in_sandbox([] {
    std::ifstream file("/proc/self/status");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.find("Seccomp:\t2") == std::string::npos) return 1;
    if (text.find("NoNewPrivs:\t1") == std::string::npos) return 2;
    size_t entries = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/etc"))
      entries += !entry.path().empty();
    if (entries == 0) return 3;
    std::vector<std::jthread> threads;
    std::atomic<size_t> sum{0};
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&sum] { sum += std::vector<char>(32 << 20, 1).size(); });
    threads.clear();
    if (sum != 8ull << 25) return 4;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (::write(STDERR_FILENO, "", 0) != 0) return 5;
    rlimit limit{};
    if (::getrlimit(RLIMIT_CORE, &limit) != 0 || limit.rlim_cur > 1 || limit.rlim_max > 1) return 6;
    return 0;
  });
  EXPECT_EQ(ending.exit_code, 0) << "signal " << ending.signal << ", call "
                                 << ending.denied_syscall - 1;
}

// What `input` returns first; its waits end when the stop is requested.
std::string read_text(data::stream::ByteInput& input, const std::stop_token& stop) {
  std::array<std::byte, 64> bytes;
  const auto got = input.read(bytes, stop);
  return got ? std::string(reinterpret_cast<const char*>(bytes.data()), *got)
             : std::string(to_string(got.status().code()));
}

// Opened as the headers of data/stream say: descriptors and spool folders before.
TEST_F(SandboxTest, ReadsInputsOfStreams) {
  using namespace data::stream;
  const test::TemporaryDirectory folder;
  test::write_whole(folder / "a.zst", test::zstd("shard"));
  std::array<int, 2> fds{};
  ASSERT_EQ(::pipe2(fds.data(), O_CLOEXEC), 0);
  const UniqueFd writer(fds[1]);
  ASSERT_EQ(::write(writer.get(), "pipe", 4), 4);
  const auto pipe = make_descriptor_input({.fd = UniqueFd(fds[0]), .name = "pipe"});
  const auto spool = SpoolFolder::open(folder.path());
  ASSERT_TRUE(spool.ok());
  const ProcessExit ending = run_in_sandbox([&]() -> int {
    if (read_text(*pipe, {}) != "pipe") return 1;
    const auto file = (*spool)->next({});
    if (!file || !*file) return 2;
    const auto shard = open_shard((*file)->path);
    if (!shard || !(*shard)->check_identity(0, (*file)->identity).ok()) return 3;
    if (read_text(**shard, {}) != "shard" || read_text(**shard, {}) != "") return 4;
    if ((*shard)->identity() != (*file)->identity) return 5;
    const auto waits_and_stops = [](const auto& source, const auto& wait) {
      const std::jthread waiter([&wait](const std::stop_token& stop) { wait(stop); });
      return test::eventually([&source] { return source.is_waiting(); });
    };
    if (!waits_and_stops(*pipe, [&](const auto& stop) { read_text(*pipe, stop); })) return 6;
    if (!waits_and_stops(**spool, [&](const auto& stop) { (void)(*spool)->next(stop); })) return 7;
    return 0;
  });
  EXPECT_EQ(ending.exit_code, 0) << "signal " << ending.signal << ", call "
                                 << ending.denied_syscall - 1;
}

TEST_F(SandboxTest, ReturnsEnosysForSyscallsWithUncheckableArguments) {
  const ProcessExit ending = run_in_sandbox([] {
    const bool none = call_of(SYS_clone3, nullptr, 0) == -1 && errno == ENOSYS;
    return none && call_of(SYS_openat2, AT_FDCWD, "/", nullptr, 0) == -1 && errno == ENOSYS ? 0 : 1;
  });
  EXPECT_EQ(ending.exit_code, 0);
}

TEST_F(SandboxTest, RaisesSigabrtOnFailedAssertion) {
  EXPECT_EQ(run_in_sandbox([]() -> int { std::abort(); }).signal, SIGABRT);
}

TEST_F(SandboxTest, FailsAllocationBeyondMemoryLimit) {
  const ProcessExit ending = run_in_sandbox(
      [] {
        try {
          const std::vector<char> within(64 << 20, 1);
          const std::vector<char> past(1 << 30, 1);
          return 1;
        } catch (const std::bad_alloc&) {
          return 0;
        }
      },
      {.threads = 1, .memory_bytes = 128 << 20});
  EXPECT_EQ(ending.exit_code, 0);
}

TEST_F(SandboxTest, ExcludesMemoryMappedBeforeFromLimit) {
  // Memory mapped before enter_sandbox(), such as the ring and the index, does not reduce the limit
  // for samples.
  void* mapped =
      ::mmap(nullptr, 1 << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const ProcessExit ending = run_in_sandbox(
      [] {
        const std::vector<char> within(64 << 20, 1);
        return within.back() == 1 ? 0 : 1;
      },
      {.threads = 1, .memory_bytes = 128 << 20});
  ::munmap(mapped, 1 << 30);
  EXPECT_EQ(ending.exit_code, 0);
}

}  // namespace
}  // namespace stoker::feeder
