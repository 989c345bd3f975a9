import { isBuiltin } from 'node:module';
import { dirname, relative, resolve, sep } from 'node:path';
import { isWithin, layerOf, layers } from './layers.js';

/** Holds the import directions of `layers.js` for `src/`, and that `topologies/` see of `src/` what its users see. */
export const importDirection = {
  meta: { type: 'problem' },
  create(context) {
    const file = below(context.cwd, context.filename);
    const check = (node) => {
      if (typeof node?.value !== 'string') return;
      const message = violation(file, target(context.cwd, context.filename, node.value), node.value);
      if (message !== undefined) context.report({ node, message });
    };
    return {
      ImportDeclaration: (node) => check(node.source),
      ExportNamedDeclaration: (node) => check(node.source),
      ExportAllDeclaration: (node) => check(node.source),
      ImportExpression: (node) => check(node.source),
      TSImportType: (node) => check(node.source),
    };
  },
};

/** Undefined where the import is allowed. */
function violation(file, path, specifier) {
  if (isWithin(file, 'topologies')) {
    if (path === undefined || isWithin(path, 'topologies') || path === 'src/index.ts') return undefined;
    return `An example imports what its users can: src/index.ts or its own folder, not '${specifier}'.`;
  }
  if (!isWithin(file, 'src')) return undefined;
  const layer = layerOf(file.slice('src/'.length));
  if (layer === undefined) return `${file} has no layer yet: add its folder to lint/layers.js and say what it may import.`;
  if (path === undefined) {
    if (isBuiltin(specifier) || layers[layer].packages?.includes(packageOf(specifier))) return undefined;
    return `'${layer}' may not import the package '${packageOf(specifier)}': see lint/layers.js.`;
  }
  const allowed = [layer, ...layers[layer].imports];
  if (isWithin(path, 'src') && allowed.some((entry) => isWithin(path.slice('src/'.length), entry))) return undefined;
  return `'${layer}' may not import ${path}, only ${allowed.join(', ')}: see lint/layers.js.`;
}

/** A path below the root for a relative import; undefined for a package or a builtin. */
function target(root, importer, specifier) {
  return specifier.startsWith('.') ? below(root, resolve(dirname(importer), specifier)) : undefined;
}

function below(root, path) {
  return relative(root, path).split(sep).join('/');
}

function packageOf(specifier) {
  return specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');
}
