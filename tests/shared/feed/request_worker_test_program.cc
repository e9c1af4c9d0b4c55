// A test program with the command line of a stoker-feed that answers requests. The name of its
// dataset selects a fault. When it reads samples, kFaultySample triggers it, for files one that
// ends in kFaultyEnd:
//   crashes          an invalid write, as of a decoder
//   crashes_once     the same, only in the first process: while INDEX_DIR/armed exists, or for
//                    files $STOKER_TEST_ARMED
//   makes_call       a denied system call
//   needs_memory     more memory than permitted
//   spins            never ends
//   stops            stops itself
//   crashes_always, stops_always: the same for every sample
//   naps             sleeps 200 times for 10 ms
//   pauses           sleeps for 1.5 seconds
// or how it rewrites such a file:
//   another_size     an image of another size
//   no_image         no image
//   too_long         more bytes than permitted
// or how it encodes any text: crashes_always, crashes_once
// or how it answers every request:
//   wrong_serial, wrong_count, wrong_code, long_text, short_reply, two_replies, noise
//   closes           closes the socket and waits
//   wrong_label      labels out of range
// or how it ends before it is ready:
//   fails, rejected  with code 70; like a process that may not install its seccomp filter
// Any other name reads the dataset, rewrites the files or encodes the texts. Each process appends a byte to the file
// $STOKER_TEST_STARTS.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "feeder/sandbox.h"
#include "feeder/serve_requests.h"
#include "shared/config/load_config.h"
#include "shared/data/dataset_decorator.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/feed/read_protocol.h"
#include "shared/image/add_restart_markers.h"
#include "shared/ring/segment.h"
#include "shared/tokenizer/tokenizer.h"
#include "tests/shared/feed/faulty_sample.h"
#include "tests/support/crashes.h"

namespace stoker::feed {
namespace {

class FaultyDataset final : public data::DatasetDecorator {
 public:
  FaultyDataset(const data::Dataset& data, std::function<void()> fault, bool is_always)
      : DatasetDecorator(data), fault_(std::move(fault)), is_always_(is_always) {}
  Status read(uint64_t sample, const data::RandomKey& random_key,
              std::span<const std::span<std::byte>> outputs) const override {
    if ((is_always_ || sample == kFaultySample) && fault_) fault_();
    return inner().read(sample, random_key, outputs);
  }

 private:
  const std::function<void()> fault_;
  const bool is_always_;
};

void nap() {
  for (int i = 0; i < 200; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

std::function<void()> fault_of(const std::string& mode, const std::string& armed_file) {
  if (mode == "crashes" || mode == "crashes_always") return test::write_invalid_address;
  if (mode == "crashes_once" && ::unlink(armed_file.c_str()) == 0)
    return test::write_invalid_address;
  if (mode == "makes_call") return [] { (void)::socket(AF_INET, SOCK_STREAM, 0); };
  if (mode == "needs_memory") return test::allocate_too_much;
  if (mode == "spins") return test::loop_forever;
  if (mode == "stops" || mode == "stops_always") return [] { ::raise(SIGSTOP); };
  if (mode == "naps") return nap;
  if (mode == "pauses") return [] { std::this_thread::sleep_for(std::chrono::milliseconds(1500)); };
  return {};
}

// Serves requests without a dataset; returns when there are no more.
void answer_wrongly(const std::string& mode, int socket_fd, std::span<std::byte> memory) {
  ReadReply reply;
  ::send(socket_fd, &reply, sizeof reply, 0);
  ReadRequest request;
  while (::recv(socket_fd, &request, sizeof request, 0) > 0) {
    std::ranges::fill(memory.subspan(sizeof(SharedHeader)), std::byte{0x5a});
    reply = {.serial = request.serial, .good = request.count};
    size_t bytes = sizeof reply;
    if (mode == "wrong_serial") ++reply.serial;
    if (mode == "wrong_count") reply.good = ~uint64_t{0};
    if (mode == "wrong_code") reply.code = 1000;
    if (mode == "long_text") reply = {.serial = reply.serial, .code = 7, .text_bytes = ~0u};
    if (mode == "short_reply") bytes = 9;
    if (mode == "noise") reply = {.serial = ~reply.serial, .good = 9, .code = 3, .text_bytes = 77};
    if (mode == "closes") {
      ::close(socket_fd);
      while (true) ::pause();
    }
    ::send(socket_fd, &reply, bytes, 0);
    if (mode == "two_replies") ::send(socket_fd, &reply, bytes, 0);
  }
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// ---- Rewriting

using Bytes = std::vector<std::byte>;

void change_height(Bytes& jpeg) {
  for (size_t at = 0; at + 6 < jpeg.size(); ++at)
    if (jpeg[at] == std::byte{0xff} && jpeg[at + 1] == std::byte{0xc0}) {
      jpeg[at + 6] ^= std::byte{1};
      return;
    }
}

std::optional<Bytes> rewrite(const std::string& mode, const std::function<void()>& fault,
                             std::span<const std::byte> file) {
  auto rewritten = image::add_restart_markers(file, image::kRewritingLimits);
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (!text.ends_with(kFaultyEnd)) return rewritten;
  if (fault) fault();
  if (mode == "another_size" && rewritten) change_height(*rewritten);
  if (mode == "no_image") return Bytes(100);
  return rewritten;
}

// Returns when there are no more requests.
void claim_too_many_bytes(int socket_fd) {
  ReadReply reply;
  ::send(socket_fd, &reply, sizeof reply, 0);
  RewriteRequest request;
  while (::recv(socket_fd, &request, sizeof request, 0) > 0) {
    reply = {.serial = request.serial, .good = request.max_bytes + 1};
    ::send(socket_fd, &reply, sizeof reply, 0);
  }
}

// ---- The program

int serve_files(const std::string& mode, int socket_fd, std::span<std::byte> memory,
                const feeder::SandboxOptions& sandbox) {
  if (mode == "too_long") {
    claim_too_many_bytes(socket_fd);
    return 0;
  }
  const auto fault = fault_of(mode, variable("STOKER_TEST_ARMED"));
  auto& header = *reinterpret_cast<SharedHeader*>(memory.data());
  if (!feeder::enter_sandbox(sandbox, header.denied_syscall).ok()) return 70;
  return feeder::serve_rewrites(
             [&](std::span<const std::byte> file) { return rewrite(mode, fault, file); }, socket_fd,
             memory)
                 .ok()
             ? 0
             : 70;
}

int serve_texts(const std::string& mode, const config::Config& config, int socket_fd,
                std::span<std::byte> memory) {
  if (const auto fault = fault_of(mode, variable("STOKER_TEST_ARMED"))) {
    ReadReply reply;
    ::send(socket_fd, &reply, sizeof reply, 0);
    TokenizeRequest request;
    if (::recv(socket_fd, &request, sizeof request, 0) > 0) fault();
    return 0;
  }
  const auto tokenizer = tokenizer::Tokenizer::read(config.data.at(mode).text_tokenizer()->path);
  return tokenizer.ok() && feeder::serve_tokens(*tokenizer, socket_fd, memory).ok() ? 0 : 70;
}

int serve(std::map<std::string, std::string>& arguments) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::string mode = arguments["--dataset"];
  if (const std::string starts = variable("STOKER_TEST_STARTS"); !starts.empty())
    std::ofstream(starts, std::ios::app) << 'x';
  if (mode == "fails") return 70;
  if (mode == "rejected") return static_cast<int>(ExitCode::kSandbox);
  const int config_fd = std::stoi(arguments["--config"].substr(sizeof "/proc/self/fd/" - 1));
  // A worker must not be able to change the settings of its successor.
  if ((::fcntl(config_fd, F_GET_SEALS) & F_SEAL_WRITE) == 0) return 70;
  const auto config = config::load_config(arguments["--config"], {});
  const auto memory = ring::Segment::attach(UniqueFd(std::stoi(arguments["--memory-fd"])));
  if (!config.ok() || !memory.ok()) return 70;
  const int socket_fd = std::stoi(arguments["--request-fd"]);
  const feeder::SandboxOptions options{.memory_bytes = 256 << 20, .reply_fd = socket_fd};
  if (arguments["--operation"] == "rewrite")
    return feeder::disable_core_dumps_and_privileges().ok()
               ? serve_files(mode, socket_fd, memory->bytes(), options)
               : 70;
  if (arguments["--operation"] == "tokenize")
    return serve_texts(mode, *config, socket_fd, memory->bytes());
  if (is_wrong_reply(mode)) {
    answer_wrongly(mode, socket_fd, memory->bytes());
    return 0;
  }
  const auto data = data::pipeline::open_indexed(mode, config->data, arguments["--index-dir"],
                                                 arguments["--dataset-fingerprint"]);
  if (!data.ok()) {
    feeder::reject_requests(data.status(), socket_fd);
    return 0;
  }
  const FaultyDataset faulty(**data, fault_of(mode, arguments["--index-dir"] + "/armed"),
                             mode.ends_with("_always"));
  auto& header = *reinterpret_cast<SharedHeader*>(memory->bytes().data());
  if (!feeder::disable_core_dumps_and_privileges().ok() ||
      !feeder::enter_sandbox(options, header.denied_syscall).ok())
    return 70;
  return feeder::serve_samples(faulty, socket_fd, memory->bytes()).ok() ? 0 : 70;
}

}  // namespace
}  // namespace stoker::feed

int main(int argc, char** argv) {
  ::signal(SIGSEGV, SIG_DFL);  // AddressSanitizer's handler reports it and exits instead
  std::map<std::string, std::string> arguments;
  for (int i = 1; i + 1 < argc; i += 2) arguments[argv[i]] = argv[i + 1];
  return stoker::feed::serve(arguments);
}
