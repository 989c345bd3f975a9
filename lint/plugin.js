import { importDirection } from './import-direction.js';
import { noCurrentDate } from './no-current-date.js';

/** The rules of this repository that no ready-made rule expresses. */
export default {
  meta: { name: 'tidemark' },
  rules: { 'import-direction': importDirection, 'no-current-date': noCurrentDate },
};
