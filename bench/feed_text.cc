// Text samples per second that the worker pool writes to the ring in shuffled order, compared with
// pread of the same number of bytes at random offsets of the same file with as many threads.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <span>
#include <string>

#include "bench/benches.h"
#include "bench/feed_run.h"
#include "bench/scratch_folder.h"
#include "shared/base/file.h"

namespace stoker::bench {
namespace {

constexpr int64_t kContext = 128;

// Random words of varying length.
std::string to_text(size_t bytes) {
  std::string text;
  text.reserve(bytes + 16);
  for (uint64_t state = 1; text.size() < bytes;) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    text.append(2 + (state >> 60) / 2, static_cast<char>('a' + (state >> 33) % 26));
    text += (state >> 50) % 12 == 0 ? '\n' : ' ';
  }
  text.resize(bytes);
  return text;
}

struct Text {
  std::shared_ptr<ScratchFolder> folder;
  std::unique_ptr<data::Dataset> dataset;
  UniqueFd fd;
};

Result<std::shared_ptr<Text>> make_text(const Options& options) {
  auto text = std::make_shared<Text>();
  STOKER_ASSIGN_OR_RETURN(text->folder, ScratchFolder::create(options.dir));
  const std::string path = text->folder->file("corpus.txt");
  STOKER_RETURN_IF_ERROR(write_file_atomically(default_file_system(), path,
                                               to_text(options.quick ? 64 << 10 : 64 << 20)));
  const config::DatasetConfig config{
      .source = config::TextDataset{.path = path, .sequence = {.block_size = kContext}}};
  STOKER_ASSIGN_OR_RETURN(text->dataset, open_train_set(config, text->folder->path()));
  STOKER_ASSIGN_OR_RETURN(text->fd, default_file_system().open(path, O_RDONLY));
  return text;
}

Status read_sample(const Text& text, uint64_t call) {
  std::array<std::byte, kContext + 1> sample;
  const uint64_t number = call * 0x9e3779b97f4a7c15u % text.dataset->size();
  if (::pread(text.fd.get(), sample.data(), sample.size(), static_cast<off_t>(number * kContext)) !=
      static_cast<ssize_t>(sample.size()))
    return Status::from_errno(errno, "pread");
  return {};
}

}  // namespace

Benchmark feed_text() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    STOKER_ASSIGN_OR_RETURN(const auto text, make_text(options));
    const FeedRun run{.batch = 64, .threads = worker_threads()};
    const auto time = options.run_time();
    return std::vector<Trial>{{"samples of 129 bytes, " + std::to_string(run.threads) + " threads",
                               "1/s",
                               [=] { return samples_per_second(*text->dataset, run, time); },
                               {{"pread alone", [=] {
                                   return calls_per_second(run.threads, time, [&](uint64_t call) {
                                     return read_sample(*text, call);
                                   });
                                 }}}}};
  };
  return {"feed-text", "text samples per second from a file into the ring", prepare};
}

}  // namespace stoker::bench
