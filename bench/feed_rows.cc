// Bytes of raw rows per second that one worker writes to the ring in shuffled order: rows of an
// .npy array, images of an IDX file, and token ids. The files are in the page cache; after a first
// epoch, small datasets are read from worker memory (MemoryCachedDataset). Baselines are memcpy of
// the same number of bytes from random rows in memory to slots, and pread alone. Measured in CPU
// time, which does not depend on other load; the time of the consumer is included.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "bench/benches.h"
#include "bench/feed_run.h"
#include "bench/scratch_folder.h"
#include "shared/base/file.h"
#include "shared/feed/worker_pool.h"

namespace stoker::bench {
namespace {

using config::DatasetConfig;

// A file of `rows` rows of `row_bytes` each after `header`, and the dataset that reads it.
struct RowFormat {
  std::string name;
  DatasetConfig config;  // without paths
  std::string header;
  uint64_t rows = 0;
  size_t row_bytes = 0;
  uint64_t batch = 64;
};

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

// NumPy format 1.0: magic, version, length of the text, then the text, padded so that it ends with
// a newline at a multiple of 64 bytes.
std::string npy_header(const std::string& dtype, const std::string& shape) {
  std::string text =
      "{'descr': '" + dtype + "', 'fortran_order': False, 'shape': (" + shape + "), }";
  text.append(64 - (10 + text.size() + 1) % 64, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

std::vector<RowFormat> row_formats(bool quick) {
  const uint64_t images = quick ? 16 : 1024, digits = quick ? 256 : 100'000;
  const uint64_t texts = quick ? 64 : 32'768;
  constexpr int64_t kContext = 1024;
  return {{.name = "npy rows of 147 KiB",
           .config = {.source = config::NumpyDataset{}},
           .header = npy_header("|u1", std::to_string(images) + ", 3, 224, 224"),
           .rows = images,
           .row_bytes = 3 * 224 * 224,
           .batch = 16},
          {.name = "idx images of 784 bytes",
           .config = {.source = config::IdxDataset{}},
           .header = big_endian(2051) + big_endian(static_cast<uint32_t>(digits)) + big_endian(28) +
                     big_endian(28),
           .rows = digits,
           .row_bytes = 28 * 28,
           .batch = 256},
          {.name = "texts of 1024 tokens",
           .config = {.source = config::TokensDataset{.path = "",
                                                      .dtype = config::TokenType::kUint32,
                                                      .sequence = {.block_size = kContext}}},
           .header = "",
           .rows = texts,
           .row_bytes = kContext * 4,
           .batch = 64}};
}

struct Files {
  std::shared_ptr<ScratchFolder> folder;
  std::unique_ptr<data::Dataset> dataset;
  std::unique_ptr<data::Dataset> stored;  // the same dataset, with a memory cache
  UniqueFd fd;
  std::string memory;            // a copy of the file contents
  std::vector<std::byte> slots;  // as large as the ring, for the baselines
};

Result<std::shared_ptr<Files>> make_files(const RowFormat& rows, const Options& options) {
  auto files = std::make_shared<Files>();
  STOKER_ASSIGN_OR_RETURN(files->folder, ScratchFolder::create(options.dir));
  DatasetConfig config = rows.config;
  const std::string path = files->folder->file("rows." + std::string(rows.name, 0, 3));
  const std::string labels = files->folder->file("labels");
  std::string labels_header;
  files->memory = rows.header;
  files->memory.resize(rows.header.size() + rows.rows * rows.row_bytes, '\0');
  if (auto* const tokens = std::get_if<config::TokensDataset>(&config.source)) {
    tokens->path = path;
    files->memory.append(4, '\0');  // target of the last token
  } else if (auto* const numpy = std::get_if<config::NumpyDataset>(&config.source)) {
    numpy->path = path;
    numpy->labels_path = labels;
    labels_header = npy_header("|u1", std::to_string(rows.rows) + ",");
  } else {
    auto& idx = std::get<config::IdxDataset>(config.source);
    idx.path = path;
    idx.labels_path = labels;
    labels_header = big_endian(2049) + big_endian(static_cast<uint32_t>(rows.rows));
  }
  STOKER_RETURN_IF_ERROR(write_file_atomically(default_file_system(), path, files->memory));
  if (!labels_header.empty())
    STOKER_RETURN_IF_ERROR(write_file_atomically(default_file_system(), labels,
                                                 labels_header + std::string(rows.rows, '\x01')));
  constexpr uint64_t kSmallLimit = 1 << 20;  // less than the dataset needs, so it is not cached
  STOKER_ASSIGN_OR_RETURN(files->dataset,
                          open_train_set(config, files->folder->path(), kSmallLimit));
  STOKER_ASSIGN_OR_RETURN(files->stored,
                          open_train_set(config, files->folder->path(), feed::kMaxCachedBytes));
  STOKER_ASSIGN_OR_RETURN(files->fd, default_file_system().open(path, O_RDONLY));
  files->slots.resize(kSlots * rows.batch * rows.row_bytes);
  return files;
}

// Offset of a call's row in the file, and offset of its copy in the slots.
struct Indices {
  size_t from = 0;
  size_t to = 0;
};
Indices indices(const RowFormat& rows, uint64_t call) {
  const uint64_t row = call * 0x9e3779b97f4a7c15u % rows.rows;
  return {.from = rows.header.size() + row * rows.row_bytes,
          .to = call % (kSlots * rows.batch) * rows.row_bytes};
}

// Bytes of rows per second of CPU time.
Measure byte_rate(const RowFormat& rows, std::function<Result<Rate>()> row_rate) {
  return [=]() -> Result<double> {
    STOKER_ASSIGN_OR_RETURN(const Rate speed, row_rate());
    return speed.per_cpu_second * static_cast<double>(rows.row_bytes) / 1e9;
  };
}

std::vector<Trial> make_trials(const RowFormat& rows, const std::shared_ptr<Files>& files,
                               std::chrono::nanoseconds time) {
  const auto copy = [=](uint64_t call) -> Status {
    const Indices at = indices(rows, call);
    std::memcpy(&files->slots[at.to], &files->memory[at.from], rows.row_bytes);
    return {};
  };
  const auto read = [=](uint64_t call) -> Status {
    const Indices at = indices(rows, call);
    const ssize_t got =
        ::pread(files->fd.get(), &files->slots[at.to], rows.row_bytes, static_cast<off_t>(at.from));
    return got == static_cast<ssize_t>(rows.row_bytes) ? Status()
                                                       : Status::from_errno(errno, "pread");
  };
  const FeedRun run{.batch = rows.batch, .threads = 1};
  FeedRun cached_run = run;
  cached_run.unmeasured = 1 + rows.rows / rows.batch;  // the first epoch
  const Baseline memcpy_alone{"memcpy", byte_rate(rows, [=] { return call_rate(1, time, copy); })};
  const Baseline pread_alone{"pread alone",
                             byte_rate(rows, [=] { return call_rate(1, time, read); })};
  return {{rows.name + ", 1 thread",
           "GB/s of CPU time",
           byte_rate(rows, [=] { return sample_rate(*files->dataset, run, time); }),
           {memcpy_alone, pread_alone}},
          {rows.name + " from memory, 1 thread",
           "GB/s of CPU time",
           byte_rate(rows, [=] { return sample_rate(*files->stored, cached_run, time); }),
           {memcpy_alone}}};
}

}  // namespace

Benchmark feed_rows() {
  const auto prepare = [](const Options& options) -> Result<std::vector<Trial>> {
    std::vector<Trial> trials;
    for (const RowFormat& rows : row_formats(options.quick)) {
      STOKER_ASSIGN_OR_RETURN(const auto files, make_files(rows, options));
      for (Trial& trial : make_trials(rows, files, options.run_time()))
        trials.push_back(std::move(trial));
    }
    return trials;
  };
  return {"feed-rows", "bytes per second of raw rows from files into the ring", prepare};
}

}  // namespace stoker::bench
