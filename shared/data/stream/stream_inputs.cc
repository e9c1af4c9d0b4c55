#include "shared/data/stream/stream_inputs.h"

#include <atomic>
#include <cassert>
#include <optional>
#include <utility>

namespace stoker::data::stream {
namespace {

class FileInputs final : public StreamInputs {
 public:
  FileInputs(StreamSource source, std::optional<uint64_t> num_epochs, uint64_t first)
      : StreamInputs({.period = num_epochs ? 0 : source.names().size()}),
        source_(std::move(source)),
        num_epochs_(num_epochs),
        next_(first) {
    assert(!source_.names().empty());
  }

  Result<std::optional<Item>> next(const std::stop_token& stop) override {
    const uint64_t files = source_.names().size();
    if (stop.stop_requested()) return stopped_reading(source_.names()[next_ % files]);
    if (num_epochs_ && next_ / files >= *num_epochs_) return std::optional<Item>();
    return std::optional(Item{.name = source_.names()[next_++ % files]});
  }
  Result<std::unique_ptr<ByteInput>> open(const std::string& name,
                                          const StreamPosition& /*from*/) override {
    return source_.open(name);
  }

 private:
  // Constant after construction.
  const StreamSource source_;
  const std::optional<uint64_t> num_epochs_;

  uint64_t next_;
};

class SpoolInputs final : public StreamInputs {
 public:
  explicit SpoolInputs(std::unique_ptr<SpoolFolder> folder)
      : StreamInputs({}), folder_(std::move(folder)) {}

  Result<std::optional<Item>> next(const std::stop_token& stop) override {
    STOKER_ASSIGN_OR_RETURN(auto file, folder_->next(stop));
    if (!file) return std::optional<Item>();
    return std::optional(Item{.name = std::move(file->path), .identity = file->identity});
  }
  Result<std::unique_ptr<ByteInput>> open(const std::string& name,
                                          const StreamPosition& /*from*/) override {
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
  DescriptorInputs(InputDescriptor descriptor, std::optional<ByteHistory> maybe_history,
                   uint64_t first)
      : StreamInputs({.can_be_read_again = maybe_history.has_value(), .starts_at_offset = true}),
        maybe_history_(maybe_history),
        descriptor_(std::make_shared<const InputDescriptor>(std::move(descriptor))),
        is_listed_(first > 0) {}

  Result<std::optional<Item>> next(const std::stop_token&) override {
    if (std::exchange(is_listed_, true)) return std::optional<Item>();
    return std::optional(Item{.name = descriptor_->name});
  }
  Result<std::unique_ptr<ByteInput>> open(const std::string& name,
                                          const StreamPosition& from) override {
    if (maybe_history_) return make_recorded_input(descriptor_, *maybe_history_, from.offset);
    if (is_opened_.exchange(true))
      return Status(StatusCode::kInvalidArgument,
                    name + ": was opened before, and its bytes cannot be read again");
    return make_descriptor_input(descriptor_);
  }
  void set_complete(uint64_t offset) override {
    if (maybe_history_) maybe_history_->set_complete(offset);
  }

 private:
  // Constant after construction.
  const std::optional<ByteHistory> maybe_history_;
  const std::shared_ptr<const InputDescriptor> descriptor_;

  bool is_listed_;
  std::atomic<bool> is_opened_{false};
};

}  // namespace

std::unique_ptr<StreamInputs> make_file_inputs(StreamSource source,
                                               std::optional<uint64_t> num_epochs, uint64_t first) {
  return std::make_unique<FileInputs>(std::move(source), num_epochs, first);
}

Result<std::unique_ptr<StreamInputs>> make_spool_inputs(const std::string& folder,
                                                        SpoolFolder::Taken taken) {
  STOKER_ASSIGN_OR_RETURN(auto spool, SpoolFolder::open(folder, std::move(taken)));
  return std::unique_ptr<StreamInputs>(std::make_unique<SpoolInputs>(std::move(spool)));
}

std::unique_ptr<StreamInputs> make_descriptor_inputs(InputDescriptor descriptor, uint64_t first) {
  return std::make_unique<DescriptorInputs>(std::move(descriptor), std::nullopt, first);
}

std::unique_ptr<StreamInputs> make_recorded_inputs(InputDescriptor descriptor,
                                                   const ByteHistory& history, uint64_t first) {
  return std::make_unique<DescriptorInputs>(std::move(descriptor), history, first);
}

}  // namespace stoker::data::stream
