#include "evaluator/view.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "shared/checkpoint/store.h"

namespace stoker::evaluator {
namespace {

constexpr uint64_t kMaxBytes = 16 << 20;

struct Naming {
  ViewKind kind;
  std::string_view file;
  std::string_view tag;
};
constexpr std::array<Naming, 4> kNamings{
    {{ViewKind::kSampleText, "generated.txt", "generated_text"},
     {ViewKind::kMistakeTable, "misclassified.md", "misclassified"},
     {ViewKind::kMistakePicture, "misclassified.png", "misclassified_image"},
     {ViewKind::kConfusionPicture, "confusion_matrix.png", "confusion_matrix"}}};

const Naming& naming_of(ViewKind kind) { return *std::ranges::find(kNamings, kind, &Naming::kind); }

}  // namespace

std::string View::tag() const { return std::string(naming_of(kind).tag); }

std::string view_path(const run::RunLayout& layout, uint64_t step, const std::string& set,
                      ViewKind kind) {
  return join_path(layout.eval_views(), checkpoint::CheckpointStore::name_of(step) + "." + set +
                                            "." + std::string(naming_of(kind).file));
}

Status write_views(FileSystem& files, const run::RunLayout& layout, uint64_t step,
                   const std::string& set, const std::vector<View>& views) {
  for (const Naming& naming : kNamings) {
    const std::string path = view_path(layout, step, set, naming.kind);
    const auto view = std::ranges::find_if(
        views, [&](const View& one) { return one.set == set && one.kind == naming.kind; });
    if (view != views.end()) {
      STOKER_RETURN_IF_ERROR(make_directories(files, layout.eval_views()));
      STOKER_RETURN_IF_ERROR(write_file_atomically(files, path, view->bytes));
      continue;
    }
    const Status removed = files.remove_file(path);
    if (!removed.ok() && removed.code() != Code::kNotFound) return removed;
  }
  return {};
}

std::vector<View> read_views(const run::RunLayout& layout, uint64_t step, const std::string& set) {
  std::vector<View> views;
  for (const Naming& naming : kNamings) {
    auto bytes = read_file(view_path(layout, step, set, naming.kind), kMaxBytes);
    if (bytes.ok()) views.push_back({set, naming.kind, *std::move(bytes)});
  }
  return views;
}

}  // namespace stoker::evaluator
