#include "shared/data/order/sample_weights_file.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "shared/base/file.h"
#include "shared/base/hash.h"
#include "shared/data/order/alias_table.h"

namespace stoker::data::order {
namespace {

static_assert(std::endian::native == std::endian::little, "weights are read as they are in memory");

constexpr uint64_t kMaxWeightsFileBytes = uint64_t{64} << 30;
constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::string_view kSnapshotMagic = "STKWGHTS";
constexpr uint32_t kSnapshotVersion = 1;
constexpr size_t kDigestBytes = 64;

Status corrupt(const std::string& name, const std::string& what) {
  return Status(StatusCode::kCorrupt, name + ": " + what);
}

// ---- Text

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ','; }

Result<std::vector<double>> parse_text(std::string_view text, const std::string& name) {
  std::vector<double> weights;
  uint64_t line = 1;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at != end;) {
    if (is_space(*at)) {
      line += *at == '\n';
      ++at;
      continue;
    }
    double weight = 0;
    const auto parsed = std::from_chars(at, end, weight);
    if (parsed.ec != std::errc() || (parsed.ptr != end && !is_space(*parsed.ptr)))
      return corrupt(name, "line " + std::to_string(line) + ": not a number");
    weights.push_back(weight);
    at = parsed.ptr;
  }
  return weights;
}

// ---- NumPy

// The value of 'KEY':. The header is a Python dictionary as written by NumPy.
std::string_view header_value(std::string_view header, std::string_view key) {
  const size_t found = header.find("'" + std::string(key) + "':");
  if (found == std::string_view::npos) return {};
  std::string_view rest = header.substr(found + key.size() + 3);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const bool is_tuple = rest.starts_with('(');
  return rest.substr(0, is_tuple ? rest.find(')') + 1 : rest.find(','));
}

template <typename Number>
std::vector<double> parse_numbers(std::string_view data) {
  std::vector<double> numbers(data.size() / sizeof(Number));
  for (size_t i = 0; i < numbers.size(); ++i) {
    Number number;
    std::memcpy(&number, data.data() + i * sizeof(Number), sizeof(Number));
    numbers[i] = number;
  }
  return numbers;
}

// (N,)
std::optional<uint64_t> length_of_shape(std::string_view shape) {
  uint64_t length = 0;
  if (!shape.starts_with('(')) return std::nullopt;
  const char* const end = shape.data() + shape.size();
  const auto parsed = std::from_chars(shape.data() + 1, end, length);
  if (parsed.ec != std::errc() || std::string_view(parsed.ptr, end) != ",)") return std::nullopt;
  return length;
}

Result<std::vector<double>> parse_npy(std::string_view bytes, const std::string& name) {
  constexpr size_t kVersionAt = 6, kLengthAt = 8;
  if (bytes.size() < 12) return corrupt(name, "truncated in its header");
  const auto version = static_cast<uint8_t>(bytes[kVersionAt]);
  const size_t length_bytes = version == 1 ? 2 : 4;
  uint32_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data() + kLengthAt, length_bytes);
  const size_t begin = kLengthAt + length_bytes;
  if (header_bytes > bytes.size() - begin) return corrupt(name, "truncated in its header");
  const std::string_view header = bytes.substr(begin, header_bytes);
  const std::string_view data = bytes.substr(begin + header_bytes);
  const std::string_view type = header_value(header, "descr");
  const uint64_t width = type == "'<f8'" ? 8 : type == "'<f4'" ? 4 : 0;
  if (width == 0)
    return corrupt(name, "its numbers are " + std::string(type.substr(0, 20)) +
                             "; float32 ('<f4') and float64 ('<f8') are read");
  const auto count = length_of_shape(header_value(header, "shape"));
  if (!count) return corrupt(name, "must have one dimension");
  if (data.size() % width != 0 || data.size() / width != *count)
    return corrupt(name, "its header declares " + std::to_string(*count) + " numbers of " +
                             std::to_string(width) + " bytes, and " + std::to_string(data.size()) +
                             " bytes follow");
  return width == 8 ? parse_numbers<double>(data) : parse_numbers<float>(data);
}

Status check(const std::vector<double>& weights, const std::string& name) {
  if (weights.empty() || weights.size() > kMaxWeights)
    return corrupt(name, "has " + std::to_string(weights.size()) + " numbers; 1 to " +
                             std::to_string(kMaxWeights) + " are possible");
  for (size_t i = 0; i < weights.size(); ++i)
    if (!(weights[i] >= 0) || std::isinf(weights[i]))
      return corrupt(name, "the weight of sample " + std::to_string(i) +
                               " is not a number from 0: " + std::to_string(weights[i]));
  if (*std::max_element(weights.begin(), weights.end()) > 0) return {};
  return corrupt(name, "all weights are 0");
}

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T take(std::string_view& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

}  // namespace

Result<std::vector<double>> parse_weights(std::string_view bytes, const std::string& name) {
  auto parsed = bytes.starts_with(kNpyMagic) ? parse_npy(bytes, name) : parse_text(bytes, name);
  if (!parsed.ok()) return parsed;
  STOKER_RETURN_IF_ERROR(check(*parsed, name));
  return parsed;
}

Result<std::vector<double>> read_weights_file(const std::string& path, uint64_t samples) {
  STOKER_ASSIGN_OR_RETURN(const std::string bytes, read_file(path, kMaxWeightsFileBytes));
  STOKER_ASSIGN_OR_RETURN(auto weights, parse_weights(bytes, path));
  if (weights.size() != samples) {
    return Status(StatusCode::kMismatch, path + ": has " + std::to_string(weights.size()) +
                                             " numbers for " + std::to_string(samples) +
                                             " samples; write one for each");
  }
  return weights;
}

std::string encode_weights_snapshot(const std::vector<double>& weights) {
  std::string out(kSnapshotMagic);
  out.reserve(128 + weights.size() * sizeof(double));
  put(out, kSnapshotVersion);
  put<uint32_t>(out, 0);
  put<uint64_t>(out, weights.size());
  for (const double weight : weights) put(out, weight);
  return out += sha256_hex(out);
}

Result<std::vector<double>> decode_weights_snapshot(std::string_view bytes,
                                                    const std::string& name) {
  constexpr size_t kHeaderBytes = kSnapshotMagic.size() + 2 * sizeof(uint32_t) + sizeof(uint64_t);
  if (bytes.size() < kHeaderBytes + kDigestBytes || !bytes.starts_with(kSnapshotMagic))
    return corrupt(name, "not a weights snapshot");
  const std::string_view digest = bytes.substr(bytes.size() - kDigestBytes);
  bytes.remove_suffix(kDigestBytes);
  if (sha256_hex(bytes) != digest) return corrupt(name, "SHA-256 mismatch");
  bytes.remove_prefix(kSnapshotMagic.size());
  const auto version = take<uint32_t>(bytes);
  if (version != kSnapshotVersion)
    return Status(StatusCode::kMismatch, name + ": version " + std::to_string(version) +
                                             ", this program reads version " +
                                             std::to_string(kSnapshotVersion));
  take<uint32_t>(bytes);
  const auto count = take<uint64_t>(bytes);
  if (bytes.size() % sizeof(double) != 0 || bytes.size() / sizeof(double) != count)
    return corrupt(name, "its lengths do not add up");
  auto weights = parse_numbers<double>(bytes);
  STOKER_RETURN_IF_ERROR(check(weights, name));
  return weights;
}

Status save_weights_snapshot(const std::vector<double>& weights, const std::string& path) {
  return write_file_atomically(default_file_system(), path, encode_weights_snapshot(weights));
}

Result<std::vector<double>> load_weights_snapshot(const std::string& path) {
  STOKER_ASSIGN_OR_RETURN(const std::string bytes, read_file(path, kMaxWeightsFileBytes));
  return decode_weights_snapshot(bytes, path);
}

}  // namespace stoker::data::order
