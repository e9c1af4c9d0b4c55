// Format `synthetic`: samples that are computed instead of read, for experiments and tests without
// data.
//
// Every number is a pure function of (stream, sample, index), computed from integer hashes and from
// sums and products in a fixed order, so the samples are the same bytes on every machine. No
// logarithm or cosine, because libm implementations differ in the last bit.
#include <cassert>
#include <cmath>
#include <cstring>
#include <utility>

#include "shared/base/number_format.h"
#include "shared/base/tensor_role.h"
#include "shared/data/counter_rng.h"
#include "shared/data/format/format.h"
#include "shared/data/sample_range.h"

namespace stoker::data::format {
namespace {

constexpr uint64_t kSeed = 0x73746f6b65720001ull;  // changing it changes every synthetic dataset
constexpr int64_t kMaxElements = int64_t{1} << 28;
enum class Stream : uint64_t { kMean = 1, kInput = 2, kTeacher = 3, kTargetNoise = 4 };

uint64_t stream_key(Stream stream, uint64_t row) {
  return mix64(mix64(kSeed + static_cast<uint64_t>(stream)) + (row + 1) * kGolden64);
}

// Approximately normal with mean 0 and variance 1: the sum of four uniform 16-bit numbers, centered
// and scaled. The absolute value is below 3.5.
int32_t unscaled_normal(uint64_t key, uint64_t index) {
  const uint64_t bits = mix64(key + (index + 1) * 0xd1342543de82ef95ull);
  const auto sum = static_cast<int32_t>((bits & 0xffff) + (bits >> 16 & 0xffff) +
                                        (bits >> 32 & 0xffff) + (bits >> 48));
  return sum - 131070;
}
float scaled_normal(int32_t unscaled) {
  constexpr float kScale = 2.6429175e-05f;  // sqrt(3) / 65536
  return static_cast<float>(unscaled) * kScale;
}
float nearly_normal(uint64_t key, uint64_t index) {
  return scaled_normal(unscaled_normal(key, index));
}

struct Shape {
  uint64_t elements = 1;  // of the input
  uint64_t targets = 0;   // 0: labels
  uint64_t classes = 0;
  config::LabelRule label_rule = config::LabelRule::kClassMean;
  float noise = 0;
};

class SyntheticDataset final : public Dataset {
 public:
  SyntheticDataset(std::string fingerprint, SampleRange range, const Shape& shape,
                   std::vector<TensorSpec> spec)
      : range_(range),
        shape_(shape),
        info_{.size = range.size(),
              .fingerprint = std::move(fingerprint),
              .spec = std::move(spec),
              .classes = shape.classes} {}

  const DatasetInfo& info() const override { return info_; }
  SampleSource source(uint64_t sample) const override {
    return {.file = "", .offset = range_.begin + sample};
  }

  Status read(uint64_t sample, const RandomKey&,
              std::span<const std::span<std::byte>> outputs) const override {
    assert(sample < size() && outputs.size() == 2 && outputs[0].size() == spec()[0].bytes());
    const uint64_t number = range_.begin + sample;
    if (shape_.classes == 0) {
      write_regression(number, outputs[0], outputs[1]);
    } else if (shape_.label_rule == config::LabelRule::kSumPositive) {
      write_label(write_normal(number, outputs[0]) > 0 ? 1 : 0, outputs[1]);
    } else {
      write_class(number, outputs[0]);
      write_label(class_of(number), outputs[1]);
    }
    return {};
  }
  Status read_labels(uint64_t first, std::span<int64_t> labels) const override {
    if (shape_.classes == 0) return Dataset::read_labels(first, labels);
    for (int64_t& label : labels) {
      const uint64_t number = range_.begin + first++;
      label = shape_.label_rule == config::LabelRule::kSumPositive
                  ? (unscaled_sum(number) > 0 ? 1 : 0)
                  : class_of(number);
    }
    return {};
  }

 private:
  int64_t class_of(uint64_t number) const { return static_cast<int64_t>(number % shape_.classes); }

  static void write_label(int64_t label, std::span<std::byte> output) {
    std::memcpy(output.data(), &label, sizeof label);
  }

  // The sum of a sample's numbers before scaling and rounding, so that its sign is exact.
  int64_t unscaled_sum(uint64_t number) const {
    const uint64_t point = stream_key(Stream::kInput, number);
    int64_t sum = 0;
    for (uint64_t i = 0; i < shape_.elements; ++i) sum += unscaled_normal(point, i);
    return sum;
  }
  // Writes a random point and returns its unscaled_sum().
  int64_t write_normal(uint64_t number, std::span<std::byte> input) const {
    const uint64_t point = stream_key(Stream::kInput, number);
    int64_t sum = 0;
    for (uint64_t i = 0; i < shape_.elements; ++i) {
      const int32_t unscaled = unscaled_normal(point, i);
      const float value = scaled_normal(unscaled);
      std::memcpy(input.data() + i * sizeof value, &value, sizeof value);
      sum += unscaled;
    }
    return sum;
  }

  // The mean of the sample's class plus noise.
  void write_class(uint64_t number, std::span<std::byte> input) const {
    const uint64_t mean = stream_key(Stream::kMean, static_cast<uint64_t>(class_of(number)));
    const uint64_t noise = stream_key(Stream::kInput, number);
    for (uint64_t i = 0; i < shape_.elements; ++i) {
      const float value = nearly_normal(mean, i) + shape_.noise * nearly_normal(noise, i);
      std::memcpy(input.data() + i * sizeof value, &value, sizeof value);
    }
  }

  // A random point and the output of a fixed linear teacher for it, plus noise. The teacher's
  // weights are scaled so that its output has variance 1.
  void write_regression(uint64_t number, std::span<std::byte> input,
                        std::span<std::byte> target) const {
    write_normal(number, input);
    const uint64_t point = stream_key(Stream::kInput, number);
    const uint64_t noise = stream_key(Stream::kTargetNoise, number);
    const double scale = 1.0 / std::sqrt(static_cast<double>(shape_.elements));
    for (uint64_t t = 0; t < shape_.targets; ++t) {
      const uint64_t teacher = stream_key(Stream::kTeacher, t);
      double sum = 0;
      for (uint64_t i = 0; i < shape_.elements; ++i)
        sum += static_cast<double>(nearly_normal(teacher, i)) *
               static_cast<double>(nearly_normal(point, i));
      const float value = static_cast<float>(sum * scale) + shape_.noise * nearly_normal(noise, t);
      std::memcpy(target.data() + t * sizeof value, &value, sizeof value);
    }
  }

  const SampleRange range_;
  const Shape shape_;
  const DatasetInfo info_;
};

Result<Shape> shape_of(const DatasetRequest& request) {
  const auto& given = request.as<config::SyntheticDataset>();
  Shape shape;
  if (given.input_shape.empty())
    return request.config_error("input_shape", "must give the shape of the input, such as [64]");
  for (const int64_t extent : given.input_shape) {
    if (extent < 1 || extent > kMaxElements / static_cast<int64_t>(shape.elements)) {
      return request.config_error("input_shape", "must be positive, with a product of at most " +
                                                     std::to_string(kMaxElements));
    }
    shape.elements *= static_cast<uint64_t>(extent);
  }
  if (given.num_classes && *given.num_classes < 1)
    return request.config_error("num_classes", "must be at least 1");
  if (!given.num_classes && (given.num_targets < 1 || given.num_targets > kMaxElements)) {
    return request.config_error("num_targets",
                                "must be between 1 and " + std::to_string(kMaxElements));
  }
  if (!(given.noise_std >= 0.0 && given.noise_std <= 1e6))
    return request.config_error("noise_std", "must be between 0 and 1e6");
  shape.classes = static_cast<uint64_t>(given.num_classes.value_or(0));
  shape.label_rule = given.label_rule;
  if (given.label_rule == config::LabelRule::kSumPositive) shape.classes = 2;
  shape.targets = shape.classes > 0 ? 0 : static_cast<uint64_t>(given.num_targets);
  shape.noise = static_cast<float>(given.noise_std);
  return shape;
}

Result<std::string> synthetic_fingerprint_text(const DatasetRequest& request) {
  STOKER_ASSIGN_OR_RETURN(const SplitFraction split, SplitFraction::of(request));
  STOKER_ASSIGN_OR_RETURN(const Shape shape, shape_of(request));
  const auto& given = request.as<config::SyntheticDataset>();
  if (given.num_samples == 0) return request.config_error("num_samples", "must be at least 1");
  std::string text = "format=synthetic " + split.to_text() +
                     " num_samples=" + std::to_string(given.num_samples) +
                     " num_classes=" + std::to_string(shape.classes) +
                     " num_targets=" + std::to_string(shape.targets) +
                     " noise_std=" + format_exact(given.noise_std) + " input_shape=";
  for (const int64_t extent : given.input_shape) text += std::to_string(extent) + ',';
  if (given.label_rule != config::LabelRule::kClassMean)
    text += " label_rule=" + std::string(config::to_string(given.label_rule));
  return text;
}

Result<files::FileTable> scan_nothing(const DatasetRequest&, const files::ScanProgress&) {
  return files::FileTable();
}

Result<std::unique_ptr<Dataset>> open_synthetic(const DatasetRequest& request, files::Index index) {
  const auto& given = request.as<config::SyntheticDataset>();
  STOKER_ASSIGN_OR_RETURN(const Shape shape, shape_of(request));
  STOKER_ASSIGN_OR_RETURN(const SampleRange range, split_range(request, given.num_samples));
  std::vector<TensorSpec> spec{
      {.name = tensor_name(TensorRole::kInput), .dtype = DType::kF32, .shape = given.input_shape}};
  if (shape.classes > 0) {
    spec.push_back({.name = tensor_name(TensorRole::kLabel), .dtype = DType::kI64, .shape = {}});
  } else {
    spec.push_back({.name = tensor_name(TensorRole::kTarget),
                    .dtype = DType::kF32,
                    .shape = {static_cast<int64_t>(shape.targets)}});
  }
  return std::unique_ptr<Dataset>(
      std::make_unique<SyntheticDataset>(index.fingerprint(), range, shape, std::move(spec)));
}

}  // namespace

const DatasetFormatOps& synthetic_format() {
  static constexpr DatasetFormatOps kFormatOps{.name = "synthetic",
                                               .fingerprint_text = synthetic_fingerprint_text,
                                               .scan = scan_nothing,
                                               .build_metadata = no_metadata,
                                               .open = open_synthetic};
  return kFormatOps;
}

}  // namespace stoker::data::format
