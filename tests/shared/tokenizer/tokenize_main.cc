// stoker-tokenize TOKENIZER TEXT OUTPUT [PART_BYTES]: writes the tokens of a text as 32-bit numbers;
// with PART_BYTES the text is encoded in parts of this size.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "shared/base/file.h"
#include "shared/tokenizer/tokenizer.h"

namespace stoker::tokenizer {
namespace {

Status tokenize(const std::string& file, const std::string& text_path, const std::string& output,
                size_t part_bytes) {
  STOKER_ASSIGN_OR_RETURN(const auto tokenizer, Tokenizer::read(file));
  STOKER_ASSIGN_OR_RETURN(const std::string text, read_file(text_path, uint64_t{1} << 30));
  TextEncoder encoder(tokenizer);
  std::vector<int32_t> ids;
  if (part_bytes == 0) {
    STOKER_RETURN_IF_ERROR(encoder.encode(text, ids));
  }
  std::string_view rest = part_bytes == 0 ? std::string_view() : text;
  bool begins = true;
  for (size_t size = part_bytes; !rest.empty();) {
    const bool ends = size >= rest.size();
    STOKER_ASSIGN_OR_RETURN(
        const auto encoded,
        encoder.encode_part(rest.substr(0, size), {.begins_section = begins, .ends_text = ends},
                            ids));
    rest.remove_prefix(encoded.bytes);
    begins = encoded.begins_section;
    size = encoded.bytes == 0 ? 2 * size : part_bytes;
  }
  FILE* const out = std::fopen(output.c_str(), "wb");
  if (out == nullptr) return Status(StatusCode::kIoError, output + ": cannot be created");
  const bool is_written = std::fwrite(ids.data(), sizeof ids[0], ids.size(), out) == ids.size();
  if (std::fclose(out) != 0 || !is_written)
    return Status(StatusCode::kIoError, output + ": cannot be written");
  return {};
}

}  // namespace
}  // namespace stoker::tokenizer

int main(int argc, char** argv) {
  if (argc < 4) return 64;
  const stoker::Status status = stoker::tokenizer::tokenize(
      argv[1], argv[2], argv[3], argc > 4 ? std::strtoull(argv[4], nullptr, 10) : 0);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 65;
}
