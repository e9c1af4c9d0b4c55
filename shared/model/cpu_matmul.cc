#include "shared/model/cpu_matmul.h"

#include <optional>
#include <string_view>

#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace stoker::model {
namespace {

// Arguments of a fused elementwise operation, unused here.
using Scalars = c10::List<std::optional<at::Scalar>>;
using LinearPointwise = at::Tensor(const at::Tensor&, const at::Tensor&,
                                   const std::optional<at::Tensor>&, std::string_view, Scalars,
                                   std::optional<std::string_view>);

// The operator has no header: it is registered for compiled graphs and can be missing.
std::optional<c10::TypedOperatorHandle<LinearPointwise>> find_linear() {
  if (!at::globalContext().userEnabledMkldnn()) return std::nullopt;
  const auto found = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  if (!found || !found->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
  return found->typed<LinearPointwise>();
}

using Reorder = at::Tensor(const at::Tensor&, std::optional<c10::SymInt>);

std::optional<c10::TypedOperatorHandle<Reorder>> find_reorder() {
  const auto found =
      c10::Dispatcher::singleton().findSchema({"mkldnn::_reorder_linear_weight", ""});
  if (!found || !found->hasKernelForDispatchKey(c10::DispatchKey::MkldnnCPU)) return std::nullopt;
  return found->typed<Reorder>();
}

// oneDNN is hundreds of times slower on matrices with gaps between rows.
at::Tensor to_dense(const at::Tensor& matrix) {
  if (matrix.is_mkldnn()) return matrix;
  return matrix.is_contiguous() || matrix.t().is_contiguous() ? matrix : matrix.contiguous();
}

const std::optional<c10::TypedOperatorHandle<LinearPointwise>>& onednn_linear_operator() {
  static const auto linear = find_linear();
  return linear;
}

}  // namespace

at::Tensor pack_for_matmul(const at::Tensor& b, int64_t rows) {
  static const auto reorder = find_reorder();
  if (!reorder || !onednn_linear_operator()) return b;
  return reorder->call(b.contiguous().to_mkldnn(), c10::SymInt(rows));
}

at::Tensor cpu_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias) {
  // The operator has no gradient. Dispatching below autograd avoids its fallback kernel, which
  // boxes all arguments. Autocast is excluded because the fallback product must stay in F32.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto& linear = onednn_linear_operator();
  if (!linear) return bias.defined() ? at::addmm(bias, a, b.t()) : at::mm(a, b.t());
  const auto maybe_bias = bias.defined() ? std::optional(bias) : std::nullopt;
  return linear->call(to_dense(a), to_dense(b), maybe_bias, "none", Scalars(), "");
}

}  // namespace stoker::model
