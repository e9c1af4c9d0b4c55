#include "evaluator/caption_artifacts.h"

#include <algorithm>
#include <utility>

#include "evaluator/canvas.h"
#include "evaluator/sample_image.h"
#include "shared/base/utf8.h"

namespace stoker::evaluator {
namespace {

using eval_metrics::CaptionedSample;

constexpr int kColumns = 4;
constexpr int kSide = 128;
constexpr int kLines = 4;  // of a caption
constexpr int kGap = 6;
constexpr Color kBackground{255, 255, 255}, kCorrect{0, 0, 0}, kOther{176, 0, 0};

// The lines of the caption that fit below an image.
std::vector<std::string> wrapped(const std::string& caption) {
  constexpr size_t kWidth = kSide / Canvas::kGlyphWidth;
  std::vector<std::string> lines(1);
  for (size_t begin = 0; begin < caption.size();) {
    const size_t end = std::min(caption.find(' ', begin), caption.size());
    const std::string word = caption.substr(begin, end - begin);
    begin = end + 1;
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > kWidth)
      lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  for (std::string& line : lines) line.resize(std::min(line.size(), kWidth));
  lines.resize(std::min<size_t>(lines.size(), kLines));
  return lines;
}

Result<std::string> captions_image(const data::Dataset& data, const TensorSpec& image,
                                   const std::vector<CaptionedSample>& captions) {
  const int count = static_cast<int>(captions.size());
  const int columns = std::min(count, kColumns), rows = (count + kColumns - 1) / kColumns;
  constexpr int kCellHeight = kSide + kLines * Canvas::kGlyphHeight + kGap;
  Canvas canvas(columns * (kSide + kGap) + kGap, rows * kCellHeight + kGap, kBackground);
  for (int i = 0; i < count; ++i) {
    const CaptionedSample& sample = captions[static_cast<size_t>(i)];
    const int left = kGap + i % kColumns * (kSide + kGap);
    int top = kGap + i / kColumns * kCellHeight;
    STOKER_ASSIGN_OR_RETURN(const auto planes, read_planes(data, sample.sample, image));
    draw_planes(canvas, left, top, kSide, planes, image.shape);
    top += kSide + 2;
    for (const std::string& line : wrapped(sample.caption)) {
      canvas.text(left, top, line, sample.is_exact ? kCorrect : kOther);
      top += Canvas::kGlyphHeight;
    }
  }
  return encode_image(canvas);
}

std::string captions_table(const data::Dataset& data,
                           const std::vector<CaptionedSample>& captions) {
  std::string table = "| sample | caption | references | file |\n|---|---|---|---|\n";
  for (const CaptionedSample& sample : captions) {
    std::string references;
    for (const std::string& reference : sample.references)
      references += (references.empty() ? "" : "<br>") + escape_markdown(valid_utf8(reference));
    table += "| " + std::to_string(sample.sample) + " | " + escape_markdown(sample.caption) +
             " | " + references + " | " + escape_markdown(data.source(sample.sample).file) + " |\n";
  }
  return table;
}

}  // namespace

Result<std::vector<Artifact>> caption_artifacts(const data::Dataset& data,
                                                const std::string& dataset, uint64_t step,
                                                const std::vector<CaptionedSample>& captions) {
  std::vector<Artifact> artifacts;
  if (captions.empty()) return artifacts;
  std::string table = captions_table(data, captions);
  if (const TensorSpec* const image = find_image(data)) {
    STOKER_ASSIGN_OR_RETURN(std::string png, captions_image(data, *image, captions));
    artifacts.push_back({dataset, ArtifactKind::kCaptionsImage, std::move(png)});
    table = "![Images with their captions, in the order of the table](" +
            artifact_name(step, dataset, ArtifactKind::kCaptionsImage) + ")\n\n" + table;
  }
  artifacts.push_back({dataset, ArtifactKind::kCaptionsTable, std::move(table)});
  return artifacts;
}

}  // namespace stoker::evaluator
