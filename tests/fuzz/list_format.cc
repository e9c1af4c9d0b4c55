// Image lists. The image decoder has a separate target (image_format.cc).
#include "tests/fuzz/dataset_under_test.h"
#include "tests/fuzz/format.h"

namespace stoker::fuzz {
namespace {

// A PNG of one gray pixel.
constexpr std::string_view kSmallestImage(
    "\x89\x50\x4e\x47\x0d\x0a\x1a\x0a\x00\x00\x00\x0d\x49\x48\x44\x52\x00\x00\x00\x01"
    "\x00\x00\x00\x01\x08\x00\x00\x00\x00\x3a\x7e\x9b\x55\x00\x00\x00\x0a\x49\x44\x41"
    "\x54\x78\xda\x63\x68\x00\x00\x00\x82\x00\x81\xda\x45\x08\x3b\x00\x00\x00\x00\x49"
    "\x45\x4e\x44\xae\x42\x60\x82",
    67);

constexpr unsigned kIsJson = 1, kIsTabbed = 2;

// The first byte selects the format of the list, which is the rest; the files a and b exist.
bool run(std::string_view input) {
  static DatasetUnderTest set;
  if (input.empty()) return false;
  const unsigned settings = static_cast<unsigned char>(input[0]);
  const std::string name = (settings & kIsJson) != 0     ? "l.jsonl"
                           : (settings & kIsTabbed) != 0 ? "l.tsv"
                                                         : "l.csv";
  set.write(name, input.substr(1));
  set.write("a", kSmallestImage);
  set.write("b", "no image");
  return set.check({.source = config::ImageListDataset{.path = set.path(name),
                                                       .num_classes = {},
                                                       .transforms = {config::Resize{{2, 2}}},
                                                       .cache = {}}});
}

std::string seed(unsigned settings, const std::string& list) {
  return static_cast<char>(settings) + list;
}

}  // namespace

const Format& list_format() {
  static constexpr Format kFormat{
      .name = "list", .run = run, .seeds = [] {
        return std::vector<std::string>{
            seed(0, "path,label\na,cat\n\"b\",dog\n"),
            seed(kIsTabbed, "label\tx\tpath\r\n3\t\t./a\r\n"),
            seed(kIsJson, "{\"path\": \"a\", \"label\": 1}\n{\"label\": \"x\", \"path\": \"b\"}")};
      }};
  return kFormat;
}

}  // namespace stoker::fuzz
