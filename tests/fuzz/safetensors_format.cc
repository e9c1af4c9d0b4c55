#include "shared/checkpoint/safetensors.h"
#include "shared/checkpoint/sharded_tensors.h"
#include "tests/fuzz/file_under_test.h"
#include "tests/fuzz/format.h"

namespace stoker::fuzz {
namespace {

using checkpoint::SafetensorsFile;

// In addition to the invariants of file_under_test.h, the tensors must fit into the file, and the
// metadata must survive a round trip of writing and reading.
bool run(std::string_view input) {
  const auto file = SafetensorsFile::open_fd(make_memory_file(input), "input.safetensors");
  if (!check_status(file.status())) return false;
  if (reads_once()) return true;
  uint64_t bytes = 0;
  checkpoint::TensorHeader header;
  for (const TensorSpec& spec : (*file)->tensors()) {
    check_invariant(bytes + spec.bytes() <= input.size(), "tensor exceeds the file");
    header.tensors.push_back({spec, bytes, bytes + spec.bytes()});
    bytes += spec.bytes();
  }
  check_tensors(**file, input.size());
  std::vector<std::unique_ptr<SafetensorsFile>> shards;
  shards.push_back(*SafetensorsFile::open_fd(make_memory_file(input), "input.safetensors"));
  const auto complete = checkpoint::ShardedTensors::create(std::move(shards));
  if (check_status(complete.status())) check_tensors(**complete, input.size());
  header.metadata = (*file)->metadata();
  const std::string again = checkpoint::format_tensor_header(header);
  const auto read = checkpoint::parse_tensor_header(again.substr(sizeof(uint64_t)), bytes);
  check_invariant(read.ok() && read->metadata == header.metadata,
                  "a header must survive a round trip");
  return true;
}

std::string file_with(const std::string& header, size_t data_bytes) {
  std::string file(sizeof(uint64_t), '\0');
  for (size_t i = 0; i < file.size(); ++i) file[i] = static_cast<char>(header.size() >> (8 * i));
  return file + header + std::string(data_bytes, '\x3a');
}

std::string tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":[)" + shape +
         R"(],"data_offsets":[)" + offsets + "]}";
}

}  // namespace

const Format& safetensors_format() {
  static constexpr Format kFormat{
      .name = "safetensors", .run = run, .seeds = [] {
        return std::vector<std::string>{
            file_with(R"({"__metadata__":{"ranges":"{\"a\":[0,[2,1]]}"},)" +
                          tensor("a", "F32", "2", "0,8") + "}",
                      8),
            file_with("{}", 0), file_with("{" + tensor("a", "F32", "2,1", "0,8") + "}", 8),
            file_with(R"({"__metadata__":{"format":"pt","é\n":"\u00e9"},)" +
                          tensor("w.1", "BF16", "3", "0,6") + "," + tensor("s", "I64", "", "6,14") +
                          "," + tensor("e", "BOOL", "0,4", "14,14") + " }  ",
                      14)};
      }};
  return kFormat;
}

}  // namespace stoker::fuzz
