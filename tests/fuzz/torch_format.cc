#include "shared/checkpoint/torch_file.h"
#include "tests/fuzz/file_under_test.h"
#include "tests/fuzz/format.h"
#include "tests/support/torch_files.h"

namespace stoker::fuzz {
namespace {

using namespace test::torch_files;

constexpr uint64_t kMaxBytes = 1 << 20;  // a view can repeat few bytes many times

bool run(std::string_view input) {
  const auto file = checkpoint::TorchFile::open_fd(make_memory_file(input), "input.pt");
  if (reads_once()) return check_status(file.status());
  return check_status(file.status()) &&
         (check_tensors(**file, kMaxBytes) || (*file)->tensors().empty());
}

std::string floats(int64_t offset, const std::vector<int64_t>& shape,
                   const std::vector<int64_t>& strides) {
  return tensor("FloatStorage", "0", 4, offset, shape, strides);
}

// Sets the CRCs to zero, which disables their check. Otherwise the fuzzer would rarely get past it.
std::string without_checksums(std::string file) {
  for (const std::string magic : {"PK\1\2", "PK\3\4"})
    for (size_t at = file.find(magic); at != std::string::npos; at = file.find(magic, at + 4))
      file.replace(at + (magic[2] == 1 ? 16 : 14), 4, std::string(4, '\0'));
  return file;
}

}  // namespace

const Format& torch_format() {
  static constexpr Format kFormat{
      .name = "torch", .run = run, .seeds = [] {
        const std::string four(16, '\x3a');
        const std::string views = dict(
            {{text("t"), parameter(floats(0, {2, 2}, {1, 2}))}, {text("s"), floats(3, {}, {})}});
        const std::string nested =
            dict({{text("epoch"), number(3)},
                  {text("lr"), "G\x3f\xf0" + std::string(6, '\0')},
                  {text("state_dict"),
                   ordered_dict({{text("u"), raw_tensor("uint16", "0", 16, 1, {3}, {2})}}) +
                       dict({{text("_metadata"), "N"}}) + "b"}});
        return std::vector<std::string>{
            torch_file(pickled(views), {{"0", four}}),
            without_checksums(torch_file(pickled(views), {{"0", four}})),
            without_checksums(torch_file(pickled(nested), {{"0", four}})),
            without_checksums(torch_file(pickled("}"), {}))};
      }};
  return kFormat;
}

}  // namespace stoker::fuzz
