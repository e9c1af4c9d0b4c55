// WorkerSandbox: a data::Sandbox of worker processes (request_worker.h), so that a file that
// crashes or exploits its decoder does not harm the process that indexes a dataset.
//
// A file is rewritten by one of at most feed.num_workers processes (auto: one per processor), each
// with memory for a usual photograph. For a larger file a process is replaced by one with more
// memory, which ends with the request if it has more than 32 MiB. A file whose process crashes,
// exceeds a limit or sends an impossible reply is tried once more in a new process. So is a text. Each
// tokenizer has a process, with memory for the worst text of its size: 64 MiB for one of 1 MiB. There are
// no more of them than cores.
//
// Threads:   see data::Sandbox and data::JpegRewriter; a reader is used by one thread.
// Ownership: the configuration must outlive the object.
// Errors:    those of find_feed_program() and RequestWorker; see data::JpegRewriter.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "shared/base/status.h"
#include "shared/config/config.h"
#include "shared/data/dataset.h"
#include "shared/data/sandbox.h"

namespace stoker::feed {

class WorkerSandbox final : public data::Sandbox {
 public:
  // `feed_program`: empty: find_feed_program(), when the first process is started.
  explicit WorkerSandbox(const config::Config& config, std::string feed_program = {})
      : config_(config), feed_program_(std::move(feed_program)) {}

  std::unique_ptr<data::JpegRewriter> make_rewriter(const std::string& dataset) const override;
  std::unique_ptr<data::TextTokenizer> make_tokenizer(
      const std::string& dataset, const std::string& digest, uint64_t text_bytes,
      std::function<bool()> should_stop) const override;
  size_t max_processes() const override;
  Result<std::unique_ptr<data::Dataset>> open_reader(const std::string& name,
                                                     const std::string& index_dir,
                                                     const data::Dataset& dataset,
                                                     std::function<void()> on_wait) const override;

 private:
  // Constant after construction.
  const config::Config& config_;
  const std::string feed_program_;
};

// Null with feed.num_processes: 0.
std::unique_ptr<WorkerSandbox> make_sandbox(const config::Config& config,
                                            const std::string& feed_program = {});

}  // namespace stoker::feed
