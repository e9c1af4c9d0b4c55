#include <sys/stat.h>

#include "shared/checkpoint/huggingface.h"
#include "tests/fuzz/file_under_test.h"
#include "tests/fuzz/format.h"
#include "tests/support/temporary_directory.h"

namespace stoker::fuzz {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kShards[]{"model-00001-of-00002.safetensors",
                                "model-00002-of-00002.safetensors"};

void write(const std::string& path, std::string_view content) {
  const UniqueFd file(::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600));
  check_invariant(
      default_file_system().write(file.get(), std::as_bytes(std::span(content)), path).ok(),
      "the input must be writable");
}

// A Hugging Face folder: the index, and the two files that it can name. Its tensors must be those of
// the files, also if the index names others.
bool run(std::string_view input) {
  static const test::TemporaryDirectory folder;
  const auto parts = split_input(input, 3);
  write(folder / kIndex, parts[0]);
  for (size_t i = 0; i < std::size(kShards); ++i) write(folder / kShards[i], parts[i + 1]);
  const auto opened = checkpoint::open_huggingface_folder(folder.path());
  // The index names a file that is not there.
  if (opened.status().code() == StatusCode::kNotFound)
    return check_status(Status(StatusCode::kMismatch, opened.status().message()));
  if (reads_once()) return check_status(opened.status());
  return check_status(opened.status()) && check_tensors(**opened, input.size());
}

std::string file_with(const std::string& header, size_t data_bytes) {
  std::string file(sizeof(uint64_t), '\0');
  for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + std::string(data_bytes, '\x3a');
}

}  // namespace

const Format& safetensors_index_format() {
  static constexpr Format kFormat{
      .name = "safetensors_index", .run = run, .seeds = [] {
        const std::string first =
            file_with(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                      R"("b":{"dtype":"BF16","shape":[1,3],"data_offsets":[8,14]}})",
                      14);
        const std::string second =
            file_with(R"({"c.weight":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})", 8);
        const std::string index =
            R"({"metadata": {"total_size": 22}, "weight_map": {"a": "model-00001-of-00002.safetensors",)"
            R"( "b": "model-00001-of-00002.safetensors", "c.weight": "model-00002-of-00002.safetensors"}})";
        return std::vector<std::string>{join_input({index, first, second})};
      }};
  return kFormat;
}

}  // namespace stoker::fuzz
