#include "shared/data/pipeline/stream_dataset.h"

#include <utility>

#include "shared/data/stream/record_decoder.h"
#include "shared/data/stream/stream_source.h"

namespace stoker::data::pipeline {
namespace {

class StreamDataset final : public Dataset {
 public:
  explicit StreamDataset(DatasetInfo info) : info_(std::move(info)) {}

  const DatasetInfo& info() const override { return info_; }
  SampleSource source(uint64_t /*sample*/) const override { return {}; }
  Status read(uint64_t /*sample*/, const RandomKey& /*random_key*/,
              std::span<const std::span<std::byte>> /*outputs*/) const override {
    return Status(StatusCode::kInternal, "a sample of a stream cannot be read by its number");
  }

 private:
  const DatasetInfo info_;
};

std::vector<std::string> input_columns(const config::DatasetConfig& config) {
  const config::FieldNames* const fields = config.fields();
  return fields == nullptr || fields->input.size() < 2 ? std::vector<std::string>() : fields->input;
}

}  // namespace

Result<std::unique_ptr<Dataset>> make_stream_dataset(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const auto source, stream::StreamSource::of(request));
  STOKER_ASSIGN_OR_RETURN(const auto decoder, stream::RecordDecoder::make(request));
  return std::unique_ptr<Dataset>(std::make_unique<StreamDataset>(
      DatasetInfo{.size = kStreamSize,
                  .fingerprint = source.fingerprint(*request.config.stream),
                  .spec = decoder->spec(0),
                  .classes = decoder->classes(),
                  .class_names = request.config.class_names(),
                  .input_columns = input_columns(request.config),
                  .max_length = decoder->max_length(),
                  .length_tensors = decoder->length_tensors()}));
}

}  // namespace stoker::data::pipeline
