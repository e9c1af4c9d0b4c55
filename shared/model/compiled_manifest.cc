#include "shared/model/compiled_manifest.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"
#include "shared/checkpoint/manifest.h"
#include "shared/checkpoint/safetensors.h"

namespace stoker::model {
namespace {

namespace json = boost::json;

struct FieldError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string string_at(const json::object& object, const char* key) {
  return std::string(object.at(key).as_string());
}

// `batched`: the first extent is the batch, null, and is dropped.
TensorSpec spec_at(const json::value& value, bool batched) {
  const json::object& object = value.as_object();
  TensorSpec spec;
  spec.name = string_at(object, "name");
  const auto dtype = parse_dtype(string_at(object, "dtype"));
  if (!dtype) throw FieldError(spec.name + " has an unknown dtype");
  if (const Status name = checkpoint::check_tensor_name(spec.name); !name.ok())
    throw FieldError(name.message());
  spec.dtype = *dtype;
  const json::array& shape = object.at("shape").as_array();
  if (batched && (shape.empty() || !shape[0].is_null()))
    throw FieldError(spec.name + " has no batch dimension");
  for (size_t i = batched ? 1 : 0; i < shape.size(); ++i)
    spec.shape.push_back(shape[i].to_number<int64_t>());
  if (!checkpoint::checked_bytes(spec)) throw FieldError(spec.name + " has an impossible shape");
  return spec;
}

std::vector<TensorSpec> batch_specs(const json::object& root, const char* key) {
  std::vector<TensorSpec> specs;
  for (const json::value& each : root.at(key).as_array()) specs.push_back(spec_at(each, true));
  return specs;
}

double finite(const json::value& value) {
  const auto number = value.to_number<double>();
  if (!std::isfinite(number)) throw FieldError("self_test has a number that is not finite");
  return number;
}

std::vector<double> finite_numbers(const json::object& object, const char* key) {
  std::vector<double> numbers;
  for (const json::value& each : object.at(key).as_array()) numbers.push_back(finite(each));
  return numbers;
}

std::string sha256_at(const json::object& files, const char* name) {
  std::string sum = string_at(files, name);
  if (!checkpoint::is_sha256(sum)) throw FieldError(std::string(name) + " has no SHA-256");
  return sum;
}

void read_tensors(const json::object& root, CompiledManifest& manifest) {
  std::set<std::string> names;
  const auto is_new = [&](const TensorSpec& spec) {
    if (!names.insert(spec.name).second) throw FieldError(spec.name + " occurs twice");
  };
  for (const json::value& each : root.at("parameters").as_array()) {
    manifest.parameters.push_back(
        {spec_at(each, false), each.as_object().at("requires_grad").as_bool()});
    is_new(manifest.parameters.back().spec);
  }
  for (const json::value& each : root.at("buffers").as_array()) {
    manifest.buffers.push_back({spec_at(each, false), each.as_object().at("persistent").as_bool()});
    is_new(manifest.buffers.back().spec);
  }
  for (const auto& [name, same] : root.at("tied_parameters").as_object()) {
    const std::string kept(same.as_string());
    const auto is_kept = [&](const auto& tensor) { return tensor.spec.name == kept; };
    is_new({.name = std::string(name)});
    if (std::ranges::none_of(manifest.parameters, is_kept) &&
        std::ranges::none_of(manifest.buffers, is_kept))
      throw FieldError(std::string(name) + " is tied to " + kept + ", which is unknown");
    if (const Status valid = checkpoint::check_tensor_name(std::string(name)); !valid.ok())
      throw FieldError(valid.message());
    manifest.tied_parameters[std::string(name)] = kept;
  }
  manifest.inputs = batch_specs(root, "inputs");
  manifest.targets = batch_specs(root, "targets");
  manifest.outputs = batch_specs(root, "outputs");
  if (manifest.inputs.empty() || manifest.inputs.size() > 2)
    throw FieldError("inputs must be one or two");
  if (manifest.outputs.empty()) throw FieldError("outputs is empty");
}

void read_self_test(const json::object& root, CompiledManifest& manifest) {
  const json::object& test = root.at("self_test").as_object();
  manifest.self_test = {.loss = finite(test.at("loss")),
                        .gradient_norms = finite_numbers(test, "gradient_norms"),
                        .output_norms = finite_numbers(test, "output_norms"),
                        .eval_loss = finite(test.at("eval_loss")),
                        .tolerance = finite(test.at("tolerance"))};
  constexpr double kMaxTolerance = 0.1;
  if (!(manifest.self_test.tolerance > 0 && manifest.self_test.tolerance <= kMaxTolerance))
    throw FieldError("self_test.tolerance is out of range");
  const auto trained =
      std::ranges::count_if(manifest.parameters, &CompiledManifest::Parameter::requires_grad);
  if (trained == 0) throw FieldError("no parameter has requires_grad");
  if (manifest.self_test.gradient_norms.size() != static_cast<size_t>(trained))
    throw FieldError("self_test.gradient_norms must have one number per parameter");
  if (manifest.self_test.output_norms.size() != manifest.outputs.size())
    throw FieldError("self_test.output_norms must have one number per output");
}

Result<CompiledManifest> read_manifest(const json::object& root, const std::string& path) {
  const auto mismatch = [&](const std::string& what) {
    return Status(StatusCode::kMismatch, path + ": " + what);
  };
  if (const auto format = root.at("format").to_number<int64_t>(); format != kCompiledFormat)
    return mismatch("has format " + std::to_string(format) + ", this program reads format " +
                    std::to_string(kCompiledFormat) + ": export the module with its stoker-export");
  CompiledManifest manifest;
  if (const std::string device = string_at(root, "device"); device != "cpu")
    return mismatch("was exported for " + device + "; compiled models run on the CPU only");
  manifest.torch = string_at(root, "torch");
  for (const json::value& flag : root.at("cpu_flags").as_array())
    manifest.cpu_flags.emplace_back(flag.as_string());
  const std::string precision = string_at(root, "precision");
  if (precision != "fp32" && precision != "bf16") throw FieldError("precision is " + precision);
  manifest.is_bf16 = precision == "bf16";
  const json::object& batch = root.at("batch").as_object();
  manifest.min_batch = batch.at("min").to_number<int64_t>();
  manifest.max_batch = batch.at("max").to_number<int64_t>();
  manifest.seeds = root.at("seeds").to_number<int64_t>();
  constexpr int64_t kMaxSeeds = 1 << 20;
  if (manifest.min_batch < 1 || manifest.max_batch < manifest.min_batch || manifest.seeds < 0 ||
      manifest.seeds > kMaxSeeds)
    throw FieldError("batch or seeds is out of range");
  read_tensors(root, manifest);
  read_self_test(root, manifest);
  const json::object& files = root.at("files").as_object();
  manifest.package_sha256 = sha256_at(files, kCompiledPackage);
  manifest.weights_sha256 = sha256_at(files, kCompiledWeights);
  manifest.self_test_sha256 = sha256_at(files, kCompiledSelfTest);
  return manifest;
}

bool is_same(const TensorSpec& ours, const TensorSpec& theirs) {
  return ours.dtype == theirs.dtype && ours.shape == theirs.shape;
}

std::string list(const std::vector<TensorSpec>& specs) {
  std::string text;
  for (const TensorSpec& spec : specs)
    text +=
        (text.empty() ? "" : ", ") + to_string(TensorSpec{"", spec.dtype, spec.shape}).substr(1);
  return text.empty() ? "nothing" : text;
}

}  // namespace

Result<CompiledManifest> parse_compiled_manifest(std::string_view text, const std::string& path) {
  return parse_json_object<CompiledManifest>(
      text, path, [&](const json::object& root) { return read_manifest(root, path); });
}

Status validate_platform(const CompiledManifest& manifest, std::string_view torch_version,
                         const std::vector<std::string>& available_cpu_flags) {
  if (manifest.torch != torch_version)
    return Status(StatusCode::kMismatch, "was compiled with PyTorch " + manifest.torch +
                                             ", this program uses LibTorch " +
                                             std::string(torch_version) +
                                             ": export the module with that version of PyTorch");
  std::string missing;
  for (const std::string& flag : manifest.cpu_flags)
    if (!std::ranges::binary_search(available_cpu_flags, flag)) missing += ' ' + flag;
  if (missing.empty()) return {};
  return Status(StatusCode::kMismatch, "was compiled for a processor with" + missing +
                                           ", which this one lacks: export the module on this "
                                           "machine");
}

Result<std::vector<std::string>> cpu_flags() {
  std::ifstream file("/proc/cpuinfo");  // not read_file(): files of /proc have no size
  if (!file) return Status(StatusCode::kIoError, "/proc/cpuinfo: cannot be read");
  std::vector<std::string> flags;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string flag; words >> flag;) flags.push_back(flag);
    break;
  }
  std::ranges::sort(flags);
  return flags;
}

Status validate_batch_size(const CompiledManifest& manifest, std::string_view key,
                           int64_t samples) {
  if (samples >= manifest.min_batch && samples <= manifest.max_batch) return {};
  return Status(StatusCode::kMismatch,
                "was exported for batches of " + std::to_string(manifest.min_batch) + " to " +
                    std::to_string(manifest.max_batch) + " samples, " + std::string(key) + " is " +
                    std::to_string(samples) +
                    ": change it, or export the module with another --max-batch");
}

Status validate_compiled_batch(const CompiledManifest& manifest,
                               const std::vector<TensorSpec>& inputs,
                               const std::vector<TensorSpec>& targets) {
  const auto mismatch = [](const char* what, const std::vector<TensorSpec>& ours,
                           const std::vector<TensorSpec>& theirs) {
    return Status(StatusCode::kMismatch, "was exported with the " + std::string(what) + ' ' +
                                             list(theirs) + " per sample; the data has " +
                                             list(ours) + ": export with such a batch");
  };
  if (!std::ranges::equal(inputs, manifest.inputs, is_same))
    return mismatch("input", inputs, manifest.inputs);
  if (!std::ranges::equal(targets, manifest.targets, is_same))
    return mismatch("targets", targets, manifest.targets);
  return {};
}

}  // namespace stoker::model
