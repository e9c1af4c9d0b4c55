#include "shared/data/stream/stream_inputs.h"

#include <cassert>
#include <mutex>
#include <utility>

namespace stoker::data::stream {
namespace {

class FileInputs final : public StreamInputs {
 public:
  FileInputs(StreamSource source, std::optional<uint64_t> num_epochs, uint64_t first)
      : source_(std::move(source)), num_epochs_(num_epochs), next_(first) {
    assert(!source_.names().empty());
  }

  Result<std::optional<Item>> next(const std::stop_token& stop) override {
    const uint64_t files = source_.names().size();
    if (stop.stop_requested()) return stopped_reading(source_.names()[next_ % files]);
    if (num_epochs_ && next_ / files >= *num_epochs_) return std::optional<Item>();
    return std::optional(Item{.name = source_.names()[next_++ % files]});
  }
  Result<std::unique_ptr<ByteInput>> open(const std::string& name) override {
    return source_.open(name);
  }
  bool can_skip_rest() const override { return source_.kind() == StreamSource::Kind::kShards; }
  uint64_t period() const override { return num_epochs_ ? 0 : source_.names().size(); }

 private:
  // Constant after construction.
  const StreamSource source_;
  const std::optional<uint64_t> num_epochs_;

  uint64_t next_;
};

class SpoolInputs final : public StreamInputs {
 public:
  explicit SpoolInputs(std::unique_ptr<SpoolFolder> folder) : folder_(std::move(folder)) {}

  Result<std::optional<Item>> next(const std::stop_token& stop) override {
    STOKER_ASSIGN_OR_RETURN(auto file, folder_->next(stop));
    if (!file) return std::optional<Item>();
    return std::optional(Item{.name = std::move(file->path), .identity = file->identity});
  }
  Result<std::unique_ptr<ByteInput>> open(const std::string& name) override {
    auto input = open_shard(name);
    if (input.status().code() != StatusCode::kNotFound) return input;
    // A state from before it was archived.
    auto archived = open_shard(SpoolFolder::archived_path(name));
    return archived.status().code() == StatusCode::kNotFound ? std::move(input)
                                                             : std::move(archived);
  }
  bool is_waiting() const override { return folder_->is_waiting(); }
  uint64_t polls() const override { return folder_->polls(); }
  bool must_remember(uint64_t name_hash) const override { return folder_->is_taken(name_hash); }

 private:
  const std::unique_ptr<SpoolFolder> folder_;
};

class DescriptorInputs final : public StreamInputs {
 public:
  DescriptorInputs(InputDescriptor descriptor, uint64_t first)
      : name_(descriptor.name), is_listed_(first > 0), descriptor_(std::move(descriptor)) {}

  Result<std::optional<Item>> next(const std::stop_token&) override {
    if (std::exchange(is_listed_, true)) return std::optional<Item>();
    return std::optional(Item{.name = name_});
  }
  Result<std::unique_ptr<ByteInput>> open(const std::string& name) override {
    const std::lock_guard lock(mutex_);
    if (!descriptor_)
      return Status(StatusCode::kInvalidArgument,
                    name + ": was opened before, and its bytes cannot be read again");
    auto input = make_descriptor_input(*std::move(descriptor_));
    descriptor_.reset();
    return input;
  }
  bool can_be_read_again() const override { return false; }

 private:
  const std::string name_;
  bool is_listed_;

  // Guarded by mutex_.
  std::mutex mutex_;
  std::optional<InputDescriptor> descriptor_;  // nullopt: opened
};

}  // namespace

std::unique_ptr<StreamInputs> make_file_inputs(StreamSource source,
                                               std::optional<uint64_t> num_epochs, uint64_t first) {
  if (source.kind() != StreamSource::Kind::kShards) num_epochs = 1;
  return std::make_unique<FileInputs>(std::move(source), num_epochs, first);
}

Result<std::unique_ptr<StreamInputs>> make_spool_inputs(const std::string& folder,
                                                        SpoolFolder::Taken taken) {
  STOKER_ASSIGN_OR_RETURN(auto spool, SpoolFolder::open(folder, std::move(taken)));
  return std::unique_ptr<StreamInputs>(std::make_unique<SpoolInputs>(std::move(spool)));
}

std::unique_ptr<StreamInputs> make_descriptor_inputs(InputDescriptor descriptor, uint64_t first) {
  return std::make_unique<DescriptorInputs>(std::move(descriptor), first);
}

}  // namespace stoker::data::stream
