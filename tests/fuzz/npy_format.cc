#include "tests/fuzz/dataset_under_test.h"
#include "tests/fuzz/format.h"
#include "tests/support/numpy_files.h"

namespace stoker::fuzz {
namespace {

using test::bytes_of;
using test::npy;

// Labels and inputs in two files; without labels, the inputs must be an archive with both. Reads
// them as plain rows, and also as sequences whose lengths are the labels.
bool run(std::string_view input) {
  static DatasetUnderTest set;
  const auto files = split_input(input, 2);
  set.write("labels", files[0]);
  set.write("inputs", files[1]);
  config::NumpyDataset numpy;
  numpy.path = set.path("inputs");
  if (!files[0].empty()) numpy.labels_path = set.path("labels");
  const bool is_set = set.check({.source = numpy});
  numpy.sequence.max_length = 3;
  if (files[0].empty()) numpy.fields.length = "y";
  numpy.lengths_path = numpy.labels_path;
  return set.check({.source = numpy}) || is_set;
}

std::vector<std::string> seeds() {
  const std::string floats = npy("<f4", "(3, 2)", bytes_of<float>({1, 2, 3, 4, 5, 6}));
  const std::string images = npy("|u1", "(3, 1, 2, 3)", std::string(18, 'p'));
  const std::string halves = npy("<f2", "(3,)", bytes_of<uint16_t>({1, 2, 3}));
  const std::string labels = npy("<i8", "(3,)", bytes_of<int64_t>({0, 2, 1}));
  const std::string sequences =
      npy("<i2", "(3, 3)", bytes_of<int16_t>({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const std::string lengths = npy("|u1", "(3,)", bytes_of<uint8_t>({3, 1, 2}));
  const std::string targets = npy("<f8", "(3, 1)", bytes_of<double>({0.5, 2, 1}));
  const std::string shape2 = "{'descr': '<u2', 'fortran_order': False, 'shape': (3L,)}";
  return {join_input({labels, floats}),
          join_input({lengths, sequences}),
          join_input({"", test::zip({{"x.npy", sequences}, {"y.npy", lengths}}, true)}),
          join_input({targets, images}),
          join_input({labels, test::npy_with_header(shape2, "123456", 2)}),
          join_input({"", test::zip({{"x.npy", images}, {"y.npy", labels}}, false)}),
          join_input({"", test::zip({{"x.npy", halves}, {"y.npy", targets}}, true)}),
          join_input({"", test::zip64({{"x.npy", floats}, {"y.npy", labels}})})};
}

}  // namespace

const Format& npy_format() {
  static constexpr Format kFormat{.name = "npy", .run = run, .seeds = seeds};
  return kFormat;
}

}  // namespace stoker::fuzz
