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

std::vector<std::string> columns_of(const config::DatasetConfig& config,
                                    std::vector<std::string> config::FieldNames::*names) {
  const config::FieldNames* const fields = config.fields();
  if (fields == nullptr || (fields->*names).size() < 2) return {};
  return fields->*names;
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
                  .input_columns = columns_of(request.config, &config::FieldNames::input),
                  .target_columns = columns_of(request.config, &config::FieldNames::target),
                  .max_length = decoder->max_length(),
                  .length_tensors = decoder->length_tensors()}));
}

}  // namespace stoker::data::pipeline
