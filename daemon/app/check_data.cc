#include "daemon/app/check_data.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/app/check_evaluated_data.h"
#include "daemon/app/index_progress.h"
#include "shared/base/dataset_schema.h"
#include "shared/base/directory_root.h"
#include "shared/base/exception_status.h"
#include "shared/base/file.h"
#include "shared/base/log.h"
#include "shared/base/number_format.h"
#include "shared/base/scratch_directory.h"
#include "shared/base/utf8.h"
#include "shared/config/epochs.h"
#include "shared/data/files/scan.h"
#include "shared/data/pipeline/dataset_overlap.h"
#include "shared/data/pipeline/open_dataset.h"
#include "shared/data/record/class_warnings.h"
#include "shared/data/record/label_range_check.h"
#include "shared/data/source.h"
#include "shared/feed/dataset_versions.h"
#include "shared/feed/make_sample_plan.h"
#include "shared/feed/worker_sandbox.h"
#include "shared/model/data_compatibility.h"
#include "shared/model/torch_status.h"
#include "shared/run/run_access.h"
#include "shared/run/run_layout.h"
#include "shared/run/run_state.h"
#include "shared/tokenizer/tokenizer.h"

namespace stoker::app {
namespace {

constexpr std::chrono::seconds kProgressInterval{30};  // of lines, without a terminal

volatile sig_atomic_t pending_signal = 0;
extern "C" void remember_signal(int number) { pending_signal = number; }

// While it exists, SIGINT and SIGTERM are remembered; then the process ends by the one that was.
class DeferredSignals {
 public:
  DeferredSignals() {
    for (const int number : {SIGINT, SIGTERM}) ::signal(number, remember_signal);
  }
  ~DeferredSignals() {
    for (const int number : {SIGINT, SIGTERM}) ::signal(number, SIG_DFL);
    if (pending_signal != 0) ::raise(pending_signal);
  }
  DeferredSignals(const DeferredSignals&) = delete;
  DeferredSignals& operator=(const DeferredSignals&) = delete;
};

// Where indexes are read and built.
class IndexFolders {
 public:
  IndexFolders(const config::Config& config, Clock& clock)
      : layout_(config.run.dir), scratch_("stokerd") {
    if (const Status locked = lock_run(clock); !locked.ok())
      std::cerr << "stokerd: " << printable_lines(locked.message(), "  ")
                << "; temporary indexes are built instead of those of the run\n";
  }

  // Empty: there is none.
  const std::string& temporary() const { return scratch_.path(); }
  std::string of_training(const config::Config& config) const {
    // The run decides when it sees new files.
    return lock_ && !feed::is_refreshable(config) ? layout_.index_dir() : temporary();
  }
  std::string of_evaluation() const {
    return lock_ ? layout_.eval_index_dir() : join_path(temporary(), "eval");
  }

 private:
  Status lock_run(Clock& clock) {
    struct stat folder {};
    if (::stat(layout_.index_dir().c_str(), &folder) != 0) return {};
    if (folder.st_uid != ::geteuid())
      return Status(StatusCode::kPermission, layout_.root() + ": is the run of another user");
    STOKER_ASSIGN_OR_RETURN(root_, DirectoryRoot::open(layout_.root()));
    STOKER_RETURN_IF_ERROR(run::check_writers(layout_, run::RunOwner::kTrusted));
    STOKER_ASSIGN_OR_RETURN(lock_, lock_file(layout_.lock_file(), run::lock_text(clock)));
    return {};
  }

  const run::RunLayout layout_;
  const ScratchDirectory scratch_;
  std::optional<DirectoryRoot> root_;
  std::optional<FileLock> lock_;
};

class DataCheck {
 public:
  DataCheck(const config::Config& config, Clock& clock, std::ostream& results)
      : config_(config),
        clock_(clock),
        results_(results),
        folders_(config, clock),
        reported_(clock.monotonic()) {}

  ExitCode run() {
    if (folders_.temporary().empty()) {
      report(Status(StatusCode::kIoError,
                    "TMPDIR: no folder can be created there; set it to a folder with space for "
                    "temporary indexes"));
      return code_;
    }
    attempt("train", [this] { return open_training(); });
    for (const std::string& name : evaluated_datasets(config_))
      attempt(name, [&] { return open_evaluated(name); });
    for (const auto& [name, dataset] : config_.data)
      if (!is_opened(name)) attempt(name, [&] { return open_other(name); });
    return code_;
  }
  // For a new run; nullopt: not known, or the data is a stream.
  const std::optional<config::EpochLength>& epoch_length() const { return epoch_length_; }

 private:
  template <typename Check>
  void attempt(const std::string& name, const Check& check) {
    if (pending_signal != 0) return;
    Status checked;
    try {
      checked = check();
    } catch (const c10::Error& error) {
      checked = model::to_status(error, "data." + name);
    } catch (const std::exception& error) {
      checked = to_status(error);
    }
    set_progress_line("");
    if (!checked.ok()) report(with_dataset(checked, name));
  }

  void report(const Status& error) {
    if (error.code() == StatusCode::kCancelled) return;
    if (code_ == ExitCode::kSuccess) code_ = exit_code_for(error);
    results_.flush();
    std::cerr << "stokerd: " << printable_lines(error.message(), "  ") << "\n";
  }

  void print(const std::string& name, const data::DatasetInfo& data, const std::string& more = {}) {
    const std::string schema = describe(data::schema_of(data));
    results_ << printable("data." + name + ": " + std::to_string(data.size) + " samples of " +
                          model::describe(data.spec) + (schema.empty() ? "" : "; " + schema) + more)
             << "\n"
             << std::flush;
  }

  OnIndexing on_indexing() {
    return
        [this](const std::string& dataset, uint64_t count, std::string_view what, double fraction) {
          if (pending_signal != 0) throw data::files::ScanStopped();
          const std::string text =
              "indexing " + indexing_.add(dataset, count, what, fraction, clock_.monotonic());
          set_progress_line(text);
          if (supports_progress_line() || clock_.monotonic() - reported_ < kProgressInterval)
            return;
          reported_ = clock_.monotonic();
          std::cerr << "stokerd: " << printable(text) << "\n";
        };
  }

  Result<data::Source> open(const std::string& name, const std::string& index_dir) {
    const auto sandbox = feed::make_sandbox(config_);
    const auto progress = [listener = on_indexing(), &name](uint64_t count, std::string_view what,
                                                            double fraction) {
      listener(name, count, what, fraction);
    };
    remember(name);
    return data::pipeline::open_source(name, config_.data, index_dir, progress, 0, sandbox.get());
  }
  // With its components.
  void remember(const std::string& name) {
    for (const std::string& part : config::sampled_datasets(config_.data, name))
      opened_.insert(part);
    opened_.insert(name);
  }
  bool is_opened(const std::string& name) const { return opened_.contains(name); }

  void print_stream(const std::string& name) {
    results_ << printable("data." + name +
                          ": not opened, because a stream can be read only once: " +
                          config_.data.at(name).stream->source)
             << "\n";
  }

  Status open_training() {
    STOKER_ASSIGN_OR_RETURN(train_, open("train", folders_.of_training(config_)));
    const auto* const stream = config::streamed_dataset(config_);
    if (stream != nullptr) print_stream(stream->first);
    const data::Dataset* const indexed = data::indexed_part(*train_);
    if (indexed != nullptr) {
      if (config_.task.has_classes() && stream == nullptr)
        data::record::warn_about_classes("train", config_.data, *indexed);
      print("train", indexed->info(), stream != nullptr ? "; without the stream" : "");
    }
    if (Status fits = check_training_data(config_, data::info_of(*train_)); !fits.ok()) {
      train_.reset();  // the others would have the same error
      return fits;
    }
    if (const config::TokenizerConfig* const tokenizer = config::training_tokenizer(config_)) {
      STOKER_ASSIGN_OR_RETURN(const auto read, tokenizer::Tokenizer::read(tokenizer->path));
      STOKER_RETURN_IF_ERROR(data::record::check_tokenizer_size(config_, read->size()));
    }
    if (stream != nullptr) return {};
    STOKER_ASSIGN_OR_RETURN(const auto weights, feed::read_sample_weights(config_, *indexed));
    STOKER_ASSIGN_OR_RETURN(const auto plan, feed::make_plan_options(config_, *indexed, weights));
    epoch_length_ = {.steps = data::order::SamplePlan(plan).epoch_tickets() /
                              static_cast<double>(config_.train.gradient_accumulation_steps)};
    return {};
  }

  // Without data.train, nothing is known that it would have to match.
  Status open_evaluated(const std::string& name) {
    if (!train_) {
      STOKER_ASSIGN_OR_RETURN(const auto data, open(name, folders_.of_evaluation()));
      print(name, data::info_of(data));
      return {};
    }
    remember(name);
    const auto mapping = data::record::mapping_to(data::schema_of(data::info_of(*train_)), config_);
    STOKER_ASSIGN_OR_RETURN(auto opened, open_for_check(config_, name, mapping,
                                                        folders_.of_evaluation(), on_indexing()));
    print(name, opened.data->info());
    STOKER_RETURN_IF_ERROR(check_same_model(config_, data::info_of(*train_), opened));
    data::pipeline::warn_about_overlap(config_.data, name, *opened.data, *train_);
    if (maybe_first_) return evaluated_data::check_same_inputs(opened, *maybe_first_);
    maybe_first_ = std::move(opened);
    return {};
  }

  Status open_other(const std::string& name) {
    if (config_.data.at(name).stream) {
      print_stream(name);
      return {};
    }
    STOKER_ASSIGN_OR_RETURN(const auto data, open(name, join_path(folders_.temporary(), "other")));
    print(name, data::info_of(data), "; not used by this run");
    return {};
  }

  const config::Config& config_;
  Clock& clock_;
  std::ostream& results_;
  const IndexFolders folders_;
  IndexProgress indexing_;
  std::chrono::nanoseconds reported_;  // when a line of progress was last printed
  std::optional<data::Source> train_;
  std::optional<evaluated_data::EvaluatedDataset> maybe_first_;
  std::set<std::string> opened_;
  std::optional<config::EpochLength> epoch_length_;
  ExitCode code_ = ExitCode::kSuccess;
};

}  // namespace

ExitCode check_data(config::Config& config, Clock& clock, std::ostream& results) {
  const LogOptions log{.level = std::max(config.log.level, LogLevel::kWarn),
                       .format = config.log.format};
  if (const Status opened = init_log(log); !opened.ok()) {
    std::cerr << "stokerd: " << printable_lines(opened.message(), "  ") << "\n";
    return exit_code_for(opened);
  }
  const DeferredSignals signals;
  DataCheck check(config, clock, results);
  const ExitCode code = check.run();
  if (check.epoch_length()) {
    config::resolve_epochs(config, *check.epoch_length());
    if (const std::string settings = config::describe_epochs(config); !settings.empty())
      results << "epoch: " << format_shortest(config.epoch_length->steps) << " steps; "
              << printable(settings) << "\n"
              << std::flush;
  }
  flush_log();
  return code;
}

}  // namespace stoker::app
