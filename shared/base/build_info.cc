#include "shared/base/build_info.h"

namespace stoker {

std::string version_text(std::string_view program, std::string_view detail) {
  // Known to packages only (scripts/package.sh): otherwise each commit would relink all programs.
  constexpr std::string_view kCommit = STOKER_COMMIT;
  std::string text = std::string(program) + " " STOKER_VERSION;
  if (!detail.empty()) text += ' ' + std::string(detail);
  text += "\ncommit    ";
  text += kCommit.empty() ? "unknown" : kCommit;
  text += "\ncompiler  " STOKER_COMPILER "\nbuild     " STOKER_BUILD_TYPE;
  return text;
}

}  // namespace stoker
