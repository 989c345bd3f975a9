/** `new Date()` and `Date()` read the machine's clock; `new Date(epochMs)` does not. */
export const noCurrentDate = {
  meta: { type: 'problem' },
  create(context) {
    const report = (node) =>
      context.report({ node, message: "This reads the machine's clock: take a Clock and write new Date(clock.now())." });
    return {
      NewExpression: (node) => {
        if (node.callee.name === 'Date' && node.arguments.length === 0) report(node);
      },
      CallExpression: (node) => {
        if (node.callee.name === 'Date') report(node);
      },
    };
  },
};
