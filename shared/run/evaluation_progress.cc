#include "shared/run/evaluation_progress.h"

#include <fcntl.h>

#include <span>
#include <string>

#include <boost/json.hpp>

#include "shared/base/json_parser.h"

namespace stoker::run {
namespace {

constexpr std::chrono::seconds kWriteInterval{1};
constexpr uint64_t kMaxProgressBytes = 4096;

}  // namespace

EvaluationProgressWriter::EvaluationProgressWriter(FileSystem& files, Clock& clock,
                                                   const RunLayout& layout)
    : files_(files), clock_(clock), layout_(layout), last_written_(clock.monotonic()) {
  remove_evaluation_progress(files, layout);
}

EvaluationProgressWriter::~EvaluationProgressWriter() {
  remove_evaluation_progress(files_, layout_);
}

void EvaluationProgressWriter::write(const EvaluationProgress& progress) {
  const auto now = clock_.monotonic();
  if (now - last_written_ < kWriteInterval) return;
  last_written_ = now;
  const std::string text =
      boost::json::serialize(boost::json::object{
          {"step", progress.step}, {"done", progress.done}, {"total", progress.total}}) +
      "\n";
  const std::string path = layout_.evaluation_progress_file();
  // O_NONBLOCK: not to wait for the reader of a FIFO.
  const auto file = files_.open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK);
  if (file.ok()) (void)files_.write(file->get(), std::as_bytes(std::span(text)), path);
}

void remove_evaluation_progress(FileSystem& files, const RunLayout& layout) {
  (void)files.remove_file(layout.evaluation_progress_file());
}

std::optional<EvaluationProgress> read_evaluation_progress(const RunLayout& layout) {
  const std::string path = layout.evaluation_progress_file();
  const auto text = read_file(path, kMaxProgressBytes);
  if (!text.ok()) return std::nullopt;
  const auto parsed =
      parse_json_object<EvaluationProgress>(*text, path, [](const boost::json::object& fields) {
        return EvaluationProgress{.step = fields.at("step").to_number<uint64_t>(),
                                  .done = fields.at("done").to_number<uint64_t>(),
                                  .total = fields.at("total").to_number<uint64_t>()};
      });
  if (!parsed.ok()) return std::nullopt;
  return *parsed;
}

}  // namespace stoker::run
